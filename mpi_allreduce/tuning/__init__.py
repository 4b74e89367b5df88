"""Decision tables made of records (:mod:`mpi_allreduce.decisions` reads them)."""
