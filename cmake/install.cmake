# What `cmake --install` puts where, and the Debian package that cpack makes of it.
include(GNUInstallDirs)

# Manual pages and completion come from the programs themselves, whose --help has the same source. Not with sanitizers
# or fuzzers: those builds are not installed.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(FF_MANUALS)
  foreach(program ffsearch ffexec)
    set(page ${CMAKE_BINARY_DIR}/manual/${program}.1.gz)
    set(completion ${CMAKE_BINARY_DIR}/completion/${program})
    add_custom_command(OUTPUT ${page} ${completion} DEPENDS ${program} VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/manual ${CMAKE_BINARY_DIR}/completion
      COMMAND sh -c "$<TARGET_FILE:${program}> --manual | gzip -9n > ${page}"
      COMMAND $<TARGET_FILE:${program}> --completion > ${completion})
    list(APPEND FF_MANUALS ${page} ${completion})
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  endforeach()
  add_custom_target(manuals ALL DEPENDS ${FF_MANUALS})
endif()

install(TARGETS ffsearch ffexec DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY graphs topologies profiles DESTINATION ${CMAKE_INSTALL_DATADIR}/ffsearch)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Where Debian's Python looks for packages, with the prefix /usr. Others set FF_PYTHON_DIR, or `pip install
# scripts/python`.
set(FF_PYTHON_DIR "lib/python3/dist-packages" CACHE PATH "folder of the Python package, relative to the prefix")
install(DIRECTORY scripts/python/ffsearch DESTINATION ${FF_PYTHON_DIR} PATTERN "__pycache__" EXCLUDE)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ffsearch)
set(CPACK_PACKAGE_VENDOR "the ffsearch authors")
set(CPACK_PACKAGE_CONTACT "the ffsearch authors <ffsearch@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fast parallelization strategies for training DNNs, and their executor")
set(CPACK_PACKAGE_DESCRIPTION "ffsearch reads an operator graph and a device topology and finds a fast way to train that
network on those devices, with an execution simulator as its oracle. ffexec loads the strategy and trains the network
with it, a rank for each device.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "openmpi-bin")        # mpirun
# libhwloc15, libnvidia-ml1: ffsearch topology loads them if they are there. python3-*: what the Python package needs.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libhwloc15, python3")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libnvidia-ml1, python3-numpy, python3-torch")
include(CPack)
