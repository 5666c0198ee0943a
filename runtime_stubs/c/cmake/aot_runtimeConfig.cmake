# find_package(aot_runtime) -> aot_runtime::aot_runtime (static) and aot_runtime::shared.  The folder can be moved.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
get_filename_component(_aot_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET aot_runtime::aot_runtime)
  add_library(aot_runtime::aot_runtime STATIC IMPORTED)
  set_target_properties(aot_runtime::aot_runtime PROPERTIES
    IMPORTED_LOCATION "${_aot_prefix}/lib/libaot_runtime.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_aot_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS}")
  add_library(aot_runtime::shared SHARED IMPORTED)
  set_target_properties(aot_runtime::shared PROPERTIES
    IMPORTED_LOCATION "${_aot_prefix}/lib/libaot_runtime.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_aot_prefix}/include")
endif()
unset(_aot_prefix)
