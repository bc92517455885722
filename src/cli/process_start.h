// cli/process_start.h -- what every program does before anything else, so that how it was started can't break it.
//
// - Standard descriptors that were closed (`>&-`) are opened on /dev/null: otherwise the first file that is opened,
//   such as a run's lock, would take the number of standard output, and be written to.
// - SIGUSR1 ("save and go on") is ignored until there is a run to save: by default it would end the process. This holds
//   from before main() on.
// - SIGXFSZ is ignored: a file that grows beyond `ulimit -f` is an error of the write that made it, which is told.
#pragma once

namespace tandem {

void begin_process();      // at the start of main(); calling it again does nothing
bool stdout_was_closed();  // what goes there is lost

}  // namespace tandem
