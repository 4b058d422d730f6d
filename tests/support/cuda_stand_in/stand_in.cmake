# The targets and variables of cmake/cuda.cmake, for FF_CUDA=STAND_IN.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR "FF_CUDA=STAND_IN needs GCC: its -fsanitize=thread announces each access to memory.")
endif()
set(FF_CUDA ON)
set(FF_CUDA_STAND_IN ON)
set(stand_in ${CMAKE_SOURCE_DIR}/tests/support/cuda_stand_in)
find_library(BOOST_CONTEXT_LIBRARY boost_context REQUIRED)
file(GLOB stand_in_sources CONFIGURE_DEPENDS ${stand_in}/*.cpp)
add_library(ff_cuda_stand_in STATIC ${stand_in_sources})
target_include_directories(ff_cuda_stand_in PUBLIC ${stand_in}/include)
target_compile_options(ff_cuda_stand_in PRIVATE -O3 -Wno-sign-conversion)
target_link_libraries(ff_cuda_stand_in PUBLIC ${BOOST_CONTEXT_LIBRARY} Threads::Threads)
add_library(CUDA::cudart ALIAS ff_cuda_stand_in)
add_library(CUDA::cublas ALIAS ff_cuda_stand_in)
set(CUDNN_LIBRARY ff_cuda_stand_in)
set(NCCL_LIBRARY ff_cuda_stand_in)
set(CUDNN_INCLUDE_DIR ${stand_in}/include)
set(NCCL_INCLUDE_DIR ${stand_in}/include)

# Kernels are C++ here. Each access to memory is a call of accesses.cpp, one for each of the source's accesses: nothing
# is vectorized or made a call of memcpy.
function(ff_compile_kernels_for_cpus sources)
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
"-x;c++;-O2;-fsanitize=thread;--param=tsan-instrument-func-entry-exit=0;--param=tsan-distinguish-volatile=1;\
-fno-tree-vectorize;-fno-tree-slp-vectorize;-fno-tree-loop-distribute-patterns;-Wno-unknown-pragmas;\
-Wno-sign-conversion")
endfunction()
message(STATUS "CUDA backend: on CPUs, by the stand-in for tests")
