"""Workers of a run from Slurm: prints the address of their scheduler, and keeps them for a day."""

import time

from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    cluster = SLURMCluster(
        cores=1,  # one worker with one core per job, because groups are single-threaded
        processes=1,
        memory="3GB",  # a worker uses less than 1.5 GB, or slightly more for certified W1
        walltime="04:00:00",
        job_script_prologue=["source ~/sdp-bench/.venv/bin/activate"],
        scheduler_options={"dashboard_address": None},
        # queue="...", account="...", job_extra_directives=["--qos=..."]
    )
    cluster.scale(jobs=40)
    cluster.wait_for_workers(1)  # without a time limit, because a run waits only ten seconds
    print(cluster.scheduler_address, flush=True)
    time.sleep(24 * 3600)
