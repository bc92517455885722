/* scripts/stand_in_library.c -- an empty library in the place of one of CUDA's (scripts/setup.sh). These three names are
   looked up when torch is loaded; every other one only when it is called, which then ends the program by name. */
int nvshmem_init, nvshmemi_get_mem_handle, nvshmemi_device_only_state;
