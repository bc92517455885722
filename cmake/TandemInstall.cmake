# make install, and find_package(tandem): the programs, every library of tandem_library(), the headers beside them.
#
#   find_package(tandem REQUIRED)
#   target_link_libraries(own_model PRIVATE tandem::tandem)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)

get_property(_libraries GLOBAL PROPERTY TANDEM_LIBRARIES)
# The name `tandem` is the program's; as a library it is tandem::tandem, which links all the others.
add_library(tandem_all INTERFACE)
add_library(tandem::tandem ALIAS tandem_all)
set_target_properties(tandem_all PROPERTIES EXPORT_NAME tandem)
target_link_libraries(tandem_all INTERFACE ${_libraries})
target_compile_features(tandem_all INTERFACE cxx_std_20)
# A user's recipe computes bits too: the compiler must not choose where to round (TandemTargets.cmake).
target_compile_options(tandem_all INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
add_custom_target(tandem_libraries DEPENDS ${_libraries})   # what `make install` builds beside the programs
install(TARGETS tandem_all ${_libraries} EXPORT tandemTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tandemTargets NAMESPACE tandem:: DESTINATION ${_config_dir})
foreach(program tandem tandem-worker tandem-video)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
# Headers, but for those whose first lines say that they are for tests only.
file(GLOB_RECURSE _headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/*.h)
foreach(header ${_headers})
  file(READ ${PROJECT_SOURCE_DIR}/src/${header} _opening LIMIT 400)
  if(NOT _opening MATCHES "for tests only" AND NOT header MATCHES "_test\\.h$")
    get_filename_component(_folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/src/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tandem/${_folder})
  endif()
endforeach()

# What the libraries link decides what a user's CMake must find; a new one has to be named here.
set(_package_fmt::fmt fmt)
set(_package_nlohmann_json::nlohmann_json nlohmann_json)
set(_package_OpenSSL::Crypto "OpenSSL COMPONENTS Crypto")
set(_package_SQLite::SQLite3 SQLite3)
set(_package_SQLite3::SQLite3 SQLite3)
set(_package_Threads::Threads Threads)
set(_package_CLI11::CLI11 CLI11)
set(_package_tomlplusplus::tomlplusplus tomlplusplus)
set(_package_ZLIB::ZLIB ZLIB)
set(_linked "")
foreach(library ${_libraries})
  get_target_property(_links ${library} INTERFACE_LINK_LIBRARIES)
  if(_links)
    list(APPEND _linked ${_links})
  endif()
endforeach()
list(TRANSFORM _linked REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1")
list(REMOVE_DUPLICATES _linked)
set(TANDEM_DEPENDENCIES "")
foreach(link ${_linked})
  if(DEFINED _package_${link})
    string(APPEND TANDEM_DEPENDENCIES "find_dependency(${_package_${link}})\n")
  elseif(link MATCHES "::" AND NOT link MATCHES "^tandem::")
    message(FATAL_ERROR "a library links ${link}, which find_package(tandem) would not find\n"
      "  why    tandemConfig.cmake must find what the libraries link\n"
      "  do     add its package to cmake/TandemInstall.cmake")
  endif()
endforeach()

set(TANDEM_CUDART "")
if(TARGET tandem::cudart)
  get_target_property(TANDEM_CUDART tandem::cudart INTERFACE_LINK_LIBRARIES)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tandemConfig.cmake.in
  ${CMAKE_BINARY_DIR}/tandemConfig.cmake INSTALL_DESTINATION ${_config_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tandemConfig.cmake ${CMAKE_BINARY_DIR}/tandemConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/TandemTorch.cmake DESTINATION ${_config_dir})
