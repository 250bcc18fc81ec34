// SPDX-License-Identifier: Apache-2.0
//
// COHORT_UNDER_SANITIZER: 1 in a program with AddressSanitizer or ThreadSanitizer, which bring an
// operator new and a pthread_create of their own, need all address space, and (ThreadSanitizer)
// start no threads after a fork; else 0.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COHORT_UNDER_SANITIZER 1
#else
#define COHORT_UNDER_SANITIZER 0
#endif
