# Run by each build: writes the commit of SOURCE into HEADER, which changes, and has version.cpp compiled again, when
# the commit does. "" where SOURCE is no git checkout; "1a2b3c4d5e6f, changed" where files differ from the commit.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
else()
  execute_process(COMMAND git -C ${SOURCE} diff-index --quiet HEAD -- ERROR_QUIET RESULT_VARIABLE changed)
  if(changed)
    string(APPEND commit ", changed")
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define FF_COMMIT \"${commit}\"\n")
