// base/clock.h -- the two clocks: one to measure with, one to write into names and records.
//
// Every duration and timeout comes from monotonic_seconds(), so a wall clock that jumps changes nothing but a stamp.
#pragma once

#include <string>

namespace tandem {

double monotonic_seconds();
double thread_cpu_seconds();  // that this thread has had a core
// That it was ready to run and had none: others had them. 0 where the kernel does not report it
// (/proc/thread-self/schedstat).
double thread_wait_seconds();
bool thread_waits_are_known();  // else that is always 0

std::string utc_stamp();       // "2026-01-31T09:05:07Z", for records
std::string utc_file_stamp();  // "20260131-090507", for names of files and folders; sorts by time

}  // namespace tandem
