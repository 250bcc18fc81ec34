#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the files of this folder as far as it goes without a cluster.

    deploy_test.py COHORTRUN
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = pathlib.Path(__file__).resolve().parent
COHORTRUN = pathlib.Path(sys.argv.pop(1)).resolve()

# Starts one process for each node, as Slurm would, and ends as the first that fails.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for node in 0 1; do SLURM_NODEID=$node SLURM_PROCID=$node "$@" & pids+=($!); done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit "$code"
"""
SCONTROL = "#!/bin/sh\necho 127.0.0.1\necho 127.0.0.2\n"
# Skips its flags and the host, and has a shell do the rest here.
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case $1 in -o|-p) shift;; esac; shift; done
echo "$1" >> "$CALLED"; shift
exec sh -c "$*"
"""
PROGRAM = "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE: $*\"\n"


def load(name):
    return yaml.safe_load((HERE / name).read_text())


def variables(container):
    return {each["name"]: each for each in container["env"]}


class DeployTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        for name, text in {"srun": SRUN, "scontrol": SCONTROL, "ssh": SSH,
                           "program": PROGRAM}.items():
            (self.path / name).write_text(text)
            (self.path / name).chmod(0o755)
        (self.path / "cohortrun").symlink_to(COHORTRUN)
        self.environment = {**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}",
                            "CALLED": str(self.path / "called")}
        for name in list(self.environment):
            if name.startswith(("PET_", "SLURM_")):
                del self.environment[name]

    def run_in_folder(self, command, **more):
        return subprocess.run(command, cwd=self.path, env={**self.environment, **more},
                              capture_output=True, text=True, timeout=100, check=False)

    def assert_four_ranks(self, ran):
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        for rank in range(4):
            self.assertIn(f"[worker {rank}] rank {rank} of 4: --epochs 3", ran.stdout)

    def test_the_sbatch_file_starts_the_workers_of_all_nodes(self):
        script = HERE / "train.sbatch"
        self.assertEqual(subprocess.run(["bash", "-n", script], check=False).returncode, 0)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        # The script's port is 20000 + the job's number % 20000.
        job = port - 20000 if 20000 <= port < 40000 else port % 20000
        ran = self.run_in_folder(["bash", script, "./program", "--epochs", "3"],
                                 SLURM_JOB_ID=str(job), SLURM_NNODES="2", WORKERS_PER_NODE="2",
                                 SLURM_JOB_NODELIST="node[1-2]")
        self.assert_four_ranks(ran)
        logs = sorted(str(each.relative_to(self.path)) for each in self.path.glob(
            "logs/*/*/attempt_0/*/stdout.log"))
        self.assertEqual(len(logs), 4, logs)

    def test_the_sbatch_files_flags_are_slurms(self):
        flags = re.findall(r"^#SBATCH --([a-z-]+)=?", (HERE / "train.sbatch").read_text(), re.M)
        self.assertLessEqual({"nodes", "ntasks-per-node", "cpus-per-task", "time", "signal"},
                             set(flags))

    def test_the_ssh_commands_start_the_workers_of_all_hosts(self):
        blocks = re.findall(r"^```sh( run)?\n(.*?)^```", (HERE / "ssh.md").read_text(),
                            re.M | re.S)
        self.assertEqual(len(blocks), 3)
        for _, text in blocks:
            ran = subprocess.run(["bash", "-n"], input=text, text=True, check=False)
            self.assertEqual(ran.returncode, 0, text)
        (self.path / "hosts").write_text("127.0.0.2 slots=2\n127.0.0.3 slots=2\n")
        [command] = [text for run, text in blocks if run]
        self.assert_four_ranks(self.run_in_folder(["bash", "-c", command]))
        called = (self.path / "called").read_text().split()
        self.assertEqual(sorted(called), ["127.0.0.2", "127.0.0.3"])

    def test_the_job_sets_pods_find_each_other(self):
        manifest = load("jobset.yaml")
        self.assertEqual((manifest["apiVersion"], manifest["kind"]),
                         ("jobset.x-k8s.io/v1alpha2", "JobSet"))
        [job] = manifest["spec"]["replicatedJobs"]
        spec = job["template"]["spec"]
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual(spec["completions"], spec["parallelism"])
        [container] = spec["template"]["spec"]["containers"]
        env = variables(container)
        self.assertEqual(env["PET_NNODES"]["value"], str(spec["completions"]))
        self.assertIn("job-completion-index",
                      env["PET_NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"])
        name = manifest["metadata"]["name"]
        self.assertEqual(env["PET_MASTER_ADDR"]["value"], f"{name}-{job['name']}-0-0.{name}")
        self.assertTrue(manifest["spec"]["network"]["enableDNSHostnames"])
        self.assertEqual(env["PET_MASTER_PORT"]["value"],
                         str(container["ports"][0]["containerPort"]))
        self.assertIn("secretKeyRef", env["COHORT_JOB_TOKEN"]["valueFrom"])
        self.assertNotIn("COHORT_ALLOW_INSECURE", env)
        for each in env.values():
            self.assertTrue(isinstance(each.get("value", ""), str), f"{each} has to be a text")

    def test_the_job_sets_variables_start_what_they_say(self):
        manifest = load("jobset.yaml")
        pods = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        env = {name: each["value"] for name, each in variables(pods["containers"][0]).items()
               if "value" in each and name != "PET_LOCAL_ADDR"}
        with socket.create_server(("127.0.0.1", 0)) as free:
            env.update(PET_MASTER_ADDR="127.0.0.1", PET_MASTER_PORT=str(free.getsockname()[1]))
        env.update(COHORT_JOB_TOKEN="what the cluster's secret has")
        arguments = [str(COHORTRUN)] + pods["containers"][0]["args"]
        arguments[arguments.index("multi_worker_mnist")] = "./program"
        nodes = [subprocess.Popen(arguments, cwd=self.path, stdout=subprocess.PIPE, text=True,
                                  env={**self.environment, **env, "PET_NODE_RANK": str(rank)})
                 for rank in (1, 0)]
        text = "".join(node.communicate(timeout=100)[0] for node in nodes)
        self.assertEqual([node.returncode for node in nodes], [0, 0], text)
        for rank in range(4):
            self.assertIn(f"[worker {rank}] rank {rank} of 4: --epochs 3", text)

    def test_the_tf_job_is_one_that_kubeflow_writes_tf_config_for(self):
        manifest = load("tfjob.yaml")
        self.assertEqual((manifest["apiVersion"], manifest["kind"]), ("kubeflow.org/v1", "TFJob"))
        worker = manifest["spec"]["tfReplicaSpecs"]["Worker"]
        self.assertEqual(worker["restartPolicy"], "ExitCode")
        self.assertGreater(worker["replicas"], 1)
        [container] = worker["template"]["spec"]["containers"]
        self.assertEqual(container["name"], "tensorflow")
        self.assertIn({"name": "tfjob-port", "containerPort": 2222}, container["ports"])

    def test_the_container_enters_by_cohortrun(self):
        text = (HERE / "Containerfile").read_text()
        self.assertIn('ENTRYPOINT ["cohortrun"]', text)
        for source in re.findall(r"^COPY --from=(\w+)", text, re.M):
            self.assertIn(f"AS {source}", text)
        for line in re.findall(r"^RUN (.*(?:\\\n.*)*)", text, re.M):
            ran = subprocess.run(["bash", "-n"], input=line.replace("\\\n", " "), text=True,
                                 check=False)
            self.assertEqual(ran.returncode, 0, line)


if __name__ == "__main__":
    unittest.main()
