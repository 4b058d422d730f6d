# FF_CUDA_STAND_IN: the sources of the CUDA backend for CPUs, with the stand-in in place of CUDA and its libraries.
# ff_cuda_on_cpus has all of it as objects: a program that links it before ff_kernels and ff_executor takes these
# functions, and none of no_cuda.cpp and no_nccl.cpp. So every other object is that of the build without CUDA.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR "FF_CUDA_STAND_IN needs GCC: its -fsanitize=thread announces each access to memory.")
endif()
if(FF_CUDA)
  message(FATAL_ERROR "FF_CUDA_STAND_IN is for builds without CUDA: -DFF_CUDA=OFF, or -DFF_CUDA_STAND_IN=OFF.")
endif()
find_library(BOOST_CONTEXT_LIBRARY boost_context)
if(NOT BOOST_CONTEXT_LIBRARY)
  message(FATAL_ERROR "FF_CUDA_STAND_IN needs Boost.Context: install it, or configure with -DFF_CUDA_STAND_IN=OFF.")
endif()
set(stand_in ${CMAKE_SOURCE_DIR}/tests/support/cuda_stand_in)

# Kernels are C++ here. Each access to memory is a call of accesses.cpp, one for each of the source's accesses: nothing
# is vectorized or made a call of memcpy.
function(ff_compile_kernels_for_cpus sources)
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
"-x;c++;-O2;-fsanitize=thread;--param=tsan-instrument-func-entry-exit=0;--param=tsan-distinguish-volatile=1;\
-fno-tree-vectorize;-fno-tree-slp-vectorize;-fno-tree-loop-distribute-patterns;-Wno-unknown-pragmas;\
-Wno-sign-conversion;-fno-strict-aliasing")
endfunction()

file(GLOB stand_in_sources CONFIGURE_DEPENDS ${stand_in}/*.cpp)
add_library(ff_cuda_stand_in STATIC ${stand_in_sources})
target_include_directories(ff_cuda_stand_in PUBLIC ${stand_in}/include)
target_compile_options(ff_cuda_stand_in PRIVATE -O3 -Wno-sign-conversion)
target_link_libraries(ff_cuda_stand_in PUBLIC ${BOOST_CONTEXT_LIBRARY} Threads::Threads)

file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/common/kernels/cuda/*.cu)
ff_compile_kernels_for_cpus("${kernel_sources}")
file(GLOB backend_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/common/kernels/cuda/*.cpp
  ${CMAKE_SOURCE_DIR}/executor/cuda/*.cpp ${CMAKE_SOURCE_DIR}/executor/transport/nccl.cpp)
list(FILTER backend_sources EXCLUDE REGEX "/(no_cuda|convolution_choice).cpp$")
add_library(ff_cuda_on_cpus OBJECT ${kernel_sources} ${backend_sources})
target_link_libraries(ff_cuda_on_cpus PUBLIC ff_cuda_stand_in PRIVATE ff_common)
set_target_properties(ff_cuda_stand_in ff_cuda_on_cpus PROPERTIES UNITY_BUILD OFF)

ff_compile_kernels_for_cpus(cuda_stand_in/wrong_kernels.cu)
add_executable(test_cuda_stand_in cuda_stand_in/stand_in_test.cpp cuda_stand_in/wrong_kernels.cu)
target_link_libraries(test_cuda_stand_in PRIVATE ff_cuda_stand_in Catch2::Catch2WithMain)
catch_discover_tests(test_cuda_stand_in TEST_PREFIX "CUDA, stand-in: " PROPERTIES LABELS cuda-stand-in TIMEOUT 600)

# Both programs with this backend: cuda_stand_in/ffsearch, cuda_stand_in/ffexec.
add_executable(ffsearch_cuda_on_cpus ${CMAKE_SOURCE_DIR}/search/main.cpp ${CMAKE_SOURCE_DIR}/search/explain_flags.cpp)
target_link_libraries(ffsearch_cuda_on_cpus PRIVATE ff_cuda_on_cpus ff_search CLI11::CLI11)
add_executable(ffexec_cuda_on_cpus ${CMAKE_SOURCE_DIR}/executor/main.cpp)
target_link_libraries(ffexec_cuda_on_cpus PRIVATE ff_cuda_on_cpus ff_executor CLI11::CLI11)
foreach(program ffsearch ffexec)
  set_target_properties(${program}_cuda_on_cpus PROPERTIES
    OUTPUT_NAME ${program} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/cuda_stand_in)
endforeach()
message(STATUS "CUDA backend: for tests, on CPUs by a stand-in")
