# CMake rules for the artifacts of an aot.toml.
#
#     execute_process(COMMAND aot make-rules --cmake OUTPUT_VARIABLE AOT_CMAKE OUTPUT_STRIP_TRAILING_WHITESPACE)
#     include(${AOT_CMAKE})
#     aot_artifact(predict)                     # a target `predict`, built by default
#     aot_artifact(train PROFILE dev)           # from a profile, in build/dev
#
# aot_artifact(NAME [MANIFEST aot.toml] [OUTPUT build] [PROFILE p] [FLAGS ...]) sets NAME_ARTIFACT to the file.

cmake_minimum_required(VERSION 3.20)
find_program(AOT_COMMAND aot REQUIRED)

function(aot_artifact name)
  cmake_parse_arguments(ARG "" "MANIFEST;OUTPUT;PROFILE" "FLAGS" ${ARGN})
  if(NOT ARG_MANIFEST)
    set(ARG_MANIFEST ${CMAKE_CURRENT_SOURCE_DIR}/aot.toml)
  endif()
  if(NOT ARG_OUTPUT)
    set(ARG_OUTPUT build)
  endif()
  get_filename_component(folder ${ARG_MANIFEST} DIRECTORY)
  set(output ${folder}/${ARG_OUTPUT})
  if(ARG_PROFILE)
    list(APPEND ARG_FLAGS --profile ${ARG_PROFILE})
    set(output ${output}/${ARG_PROFILE})
  endif()
  set(file ${output}/${name}.aot)
  set(depfile ${CMAKE_CURRENT_BINARY_DIR}/${name}.aot.d)
  add_custom_command(
    OUTPUT ${file}
    COMMAND ${AOT_COMMAND} build --manifest ${ARG_MANIFEST} ${ARG_FLAGS} --depfile ${depfile} ${name}.aot
    DEPENDS ${ARG_MANIFEST}
    DEPFILE ${depfile}
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
    COMMENT "aot build ${name}"
    VERBATIM)
  add_custom_target(${name} ALL DEPENDS ${file})
  set(${name}_ARTIFACT ${file} PARENT_SCOPE)
endfunction()
