// checkpoint/place.h -- the checkpoints of a run are folders of its own: a link in their place is refused by name.
//
// A run folder may come from a stranger. Saving drops old generations, and a link there would drop those of somebody
// else.
#pragma once

#include <filesystem>

namespace tandem {

// Throws ConfigError that names the link if the folder, or a generation in it (whole or half built), is one. Nothing
// there is no fault.
void refuse_linked_checkpoints(const std::filesystem::path& checkpoints_dir);

}  // namespace tandem
