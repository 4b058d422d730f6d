# To be sourced before mpirun: one thread a rank; more ranks than cores are allowed; ranks are not bound to cores, else
# those of several jobs would share core 0; and Open MPI lets root run them.
export OMP_NUM_THREADS=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
if [[ $EUID -eq 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
