# The compiler behind ccache, if it is there; a launcher given by hand (CMAKE_CXX_COMPILER_LAUNCHER) is left alone.
#
# ccache refuses a compilation with a precompiled header unless told that its macros and times may be trusted, and
# the compiler must keep the `#pragma GCC pch_preprocess` line (-fpch-preprocess, in tandem_precompile()).
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TANDEM_CCACHE ccache)
  if(TANDEM_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TANDEM_CCACHE})
    if(NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${TANDEM_CCACHE})
    endif()
  endif()
endif()
