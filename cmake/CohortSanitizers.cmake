# What the sanitizers' run-time libraries are told when ctest starts a test.
# Sets COHORT_SANITIZER_ENVIRONMENT, a list of NAME=value.
set(COHORT_SANITIZER_ENVIRONMENT "")
if(COHORT_SANITIZER MATCHES "address")
  list(APPEND COHORT_SANITIZER_ENVIRONMENT
    "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
    "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/tools/lsan.supp:print_suppressions=0")
endif()
if(COHORT_SANITIZER MATCHES "undefined")
  list(APPEND COHORT_SANITIZER_ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1")
endif()
if(COHORT_SANITIZER MATCHES "thread")
  list(APPEND COHORT_SANITIZER_ENVIRONMENT
    "TSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/tools/tsan.supp:halt_on_error=0:second_deadlock_stack=1")
endif()
