# find_package(wootz CONFIG REQUIRED): kernels of one's own, built with a project and installed with it.
#
#   wootz_add_artifacts(target DESTINATION folder
#                       [MANIFEST file]   default: kernels.yaml beside the CMakeLists.txt that calls
#                       [PROFILE name] [TARGETS name ...] [FORMATS name ...] [KERNELS name ...] [KNOBS knob=value ...]
#                       [PREBUILT folder] [SOURCES ON|OFF])
#
# Adds `target`, a part of ALL, which runs `wootz build` (what is up to date is left alone), and installs the folder
# that wootz.load opens to DESTINATION: for an entry point `name = package` of the group wootz.artifacts, that is
# package/artifacts. PREBUILT: a folder that `wootz build` has made with the same options: it is checked, and
# installed as it is. SOURCES: whether the emitted sources go with it, for wootz.load(jit=True) (default: ON).
# The target's property WOOTZ_ARTIFACTS is the folder that is built.
# CMAKE_BUILD_PARALLEL_LEVEL of the environment limits the compilers that run at once.
#
# WOOTZ_COMMAND, where it is set, is run in place of the wootz that Python_EXECUTABLE has.
cmake_policy(VERSION 3.21...4.0)

function(wootz_add_artifacts target)
    set(one MANIFEST PROFILE DESTINATION PREBUILT SOURCES)
    set(many TARGETS FORMATS KERNELS KNOBS)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "${one}" "${many}")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "wootz_add_artifacts(${target}): no such option: ${arg_UNPARSED_ARGUMENTS}")
    endif()
    if(NOT arg_DESTINATION)
        message(FATAL_ERROR "wootz_add_artifacts(${target}): name a DESTINATION, as acme/artifacts")
    endif()
    if(NOT arg_MANIFEST)
        set(arg_MANIFEST kernels.yaml)
    endif()
    get_filename_component(manifest "${arg_MANIFEST}" ABSOLUTE)
    if(NOT EXISTS "${manifest}")
        message(FATAL_ERROR "wootz_add_artifacts(${target}): there is no manifest ${manifest}")
    endif()

    string(TOUPPER "${arg_SOURCES}" sources)
    if(DEFINED arg_SOURCES AND NOT sources MATCHES "^(ON|OFF|TRUE|FALSE|YES|NO|1|0)$")
        message(FATAL_ERROR "wootz_add_artifacts(${target}): SOURCES is '${arg_SOURCES}', wanted ON or OFF")
    endif()

    if(NOT WOOTZ_COMMAND)
        find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
        set(WOOTZ_COMMAND "${Python_EXECUTABLE}" -m wootz.gen)
    endif()
    set(plan --manifest "${manifest}")
    foreach(option IN ITEMS PROFILE ${many})
        if(arg_${option})
            string(TOLOWER "${option}" name)
            list(APPEND plan --${name} ${arg_${option}})
        endif()
    endforeach()
    if(arg_PREBUILT)
        get_filename_component(artifacts "${arg_PREBUILT}" ABSOLUTE)
        list(APPEND plan --prebuilt)
    else()
        set(artifacts "${CMAKE_CURRENT_BINARY_DIR}/${target}")
    endif()
    if(NOT "$ENV{CMAKE_BUILD_PARALLEL_LEVEL}" STREQUAL "")
        list(APPEND plan --jobs "$ENV{CMAKE_BUILD_PARALLEL_LEVEL}")
    endif()
    add_custom_target(
        "${target}" ALL
        COMMAND ${WOOTZ_COMMAND} build ${plan} --out "${artifacts}"
        WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
        COMMENT "wootz: building ${target} of ${arg_MANIFEST}"
        USES_TERMINAL VERBATIM)
    set_target_properties("${target}" PROPERTIES WOOTZ_ARTIFACTS "${artifacts}")

    set(folders fatbin ptx metallib cpu stub checks)
    if(NOT DEFINED arg_SOURCES OR arg_SOURCES)
        list(APPEND folders src)
    endif()
    foreach(folder IN LISTS folders)
        install(DIRECTORY "${artifacts}/${folder}" DESTINATION "${arg_DESTINATION}" OPTIONAL MESSAGE_NEVER
                FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    endforeach()
    install(FILES "${artifacts}/index.json" DESTINATION "${arg_DESTINATION}")
endfunction()
