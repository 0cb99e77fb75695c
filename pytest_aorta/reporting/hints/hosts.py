"""Hints about hosts: reaching them, their files and disks, container engines, schedulers."""

from __future__ import annotations

from pytest_aorta.reporting.hints.hint import says

_SSH = "OpenSSH's manual"
_DOCKER = "Docker's documentation"
_NFS = "the nfs and exports manuals"
_SLURM = "Slurm's documentation"
_LINUX = "the Linux manual"
_OWN = "pytest-aorta's documentation, page how-to/failures"

# Whatever else was seen, also in the kernel logs of other hosts, came of it.
LOST = (
    says(
        "host_lost",
        "fatal",
        r"it is down or cut off|the channel broke|\brebooted during the run|boot id changed",
        "the host crashed, rebooted, lost power or lost its network while the run went on",
        "its console log and power; `last -x` tells of a reboot",
        _OWN,
    ),
)

HOSTS = (
    says(
        "session_lost",
        "degrade",
        r"its SSH session ended|yet the host answers over a new connection",
        "sshd on that host was restarted, somebody ended or stopped the session, or its link stood still; the host "
        "itself is up",
        "look at its sshd log around that time (`journalctl -u ssh -u sshd`), then run again",
        _SSH,
    ),
    says(
        "host_name",
        "fatal",
        r"does not resolve|name or service not known|could not resolve hostname|temporary failure in name resolution"
        r"|nodename nor servname",
        "the name of a host is not known where pytest runs, or the name server does not answer",
        "correct it in node_dict, or give it a HostName in ~/.ssh/config; `getent hosts NAME` shows what is known",
        _SSH,
    ),
    says(
        "host_key_changed",
        "fatal",
        r"host key (?:has changed|verification failed|for .{0,80} (?:has changed|does not match))"
        r"|remote host identification has changed",
        "the host was installed anew, or another machine answers in its place",
        "ask its owner; only then remove the old key by `ssh-keygen -R`",
        _SSH,
    ),
    says(
        "host_key_unknown",
        "fatal",
        r"host key .{0,80}(?:is not known|unknown)|no .{0,20}host key is known",
        "nobody has accepted the key of this host yet",
        "compare its fingerprint with the machine's, then add it to ~/.ssh/known_hosts, or host_key_policy: accept-new",
        _SSH,
    ),
    says(
        "ssh_refused",
        "fatal",
        r"was not let in|permission denied \((?:publickey|password|keyboard)|no supported authentication methods"
        r"|authentication failed|hung up while keys were tried",
        "the user name or key is wrong for this host, or the key needs a passphrase and no agent holds it",
        "try `ssh -v` with the user and key of the cluster file; check username, priv_key_file and `ssh-add -l`",
        _SSH,
    ),
    says(
        "ssh_overloaded",
        "degrade",
        r"hung up during the greeting|error reading ssh protocol banner|exceeded MaxStartups|banner exchange"
        r"|it says .{0,80}, expected the greeting of sshd",
        "sshd closed the connection before the login: too many at once, or it is no sshd",
        "try again; raise MaxStartups in sshd_config of that host",
        _SSH,
    ),
    says(
        "host_unreachable",
        "fatal",
        r"^(?!.*could not get the image).*(?:no route to host|network is unreachable|host is down"
        r"|no ssh connection.{0,120}(?:no answer|connection refused)"
        r"|no answer within \d+(?:\.\d+)? s, expected sshd|connect to host .{0,80} port \d+)",
        "the host is off, cut off, or does not run sshd where it is looked for",
        "try `ssh` with the user and key of the cluster file; then power, cable, firewall, port in ~/.ssh/config",
        _SSH,
    ),
    says(
        "node_program_ended",
        "degrade",
        r"the node program ended|said no hello within|its node program does not run",
        "our program on that host was ended by somebody, or could not start",
        "look for the OOM killer there, for a login script that prints or waits, and whether python3 starts",
        _OWN,
    ),
    says(
        "no_python",
        "fatal",
        r"python3?: (?:command )?not found|no python3|cannot run 'python\S*'|\bno python 3\.\d+ or newer",
        "the host, or the image, has no Python where it is looked for",
        "install Python 3.8 or newer there, or set `python` to its path",
        _OWN,
    ),
    says(
        "no_torch",
        "fatal",
        r"has no torch|no module named '?torch\b",
        "the Python that starts the workload has no torch",
        "install torch for that Python, or set `python` to one that has it",
        _OWN,
    ),
    says(
        "no_module",
        "fatal",
        r"ModuleNotFoundError|no module named|cannot import name",
        "the workload needs a Python package that its environment lacks, or has in another version",
        "install it into the image or environment that `python` names, on every host",
        "Python's documentation",
    ),
    says(
        "shared_library_missing",
        "fatal",
        r"error while loading shared libraries|cannot open shared object file|undefined symbol|GLIBC\w*_\S+' not found"
        r"|version `\w+_[\d.]+' not found",
        "a library is missing or of another version than the program was built with",
        "`ldd` on the file that is named, inside the container; look at LD_LIBRARY_PATH",
        "the ld.so manual",
    ),
    says(
        "disk_full_here",
        "fatal",
        r"(?:no space left on device|disk quota exceeded).{0,160}on this machine"
        r"|on this machine: (?:no space left on device|disk quota exceeded)",
        "the disk or the quota of the run's results is used up, on the machine that runs pytest; no host is to blame",
        "free space there, or name a folder on a larger disk with --aorta-output",
        _LINUX,
    ),
    says(
        "disk_full",
        "fatal",
        r"no space left on device|errno 28\b|MiB free in|disk quota exceeded|errno 122\b",
        "the disk or the quota of the folder that is named is used up",
        "free space there, or set work_dir to a folder on a larger disk",
        _LINUX,
    ),
    says(
        "root_squash",
        "fatal",
        r"root[_ -]?squash|nobody:nogroup|chown.{0,80}operation not permitted"
        r"|(?:nfs|/(?:shared|mnt|nfs|lustre|home)/).{0,120}(?:permission denied|operation not permitted)",
        "the folder is on a file server that takes root's rights away (root squash), and the container runs as root",
        "give the run a folder on a local disk (work_dir), or container.runtime.args.user with the owner's number",
        _NFS,
    ),
    says(
        "stale_mount",
        "fatal",
        r"stale (?:nfs )?file handle|transport endpoint is not connected|errno 116\b|ESTALE",
        "a mounted folder was exported anew or its server restarted; this host still holds the old one",
        "unmount and mount it again on that host, then start the containers anew",
        _NFS,
    ),
    says(
        "read_only",
        "fatal",
        r"read-only file system|errno 30\b",
        "the folder is mounted read-only, or the kernel made its disk so after an error",
        "see `mount` and the kernel log of that host; set work_dir to a folder that can be written",
        _LINUX,
    ),
    says(
        "folder_not_writable",
        "fatal",
        r"the folder \S+ cannot be written|cannot (?:write|create|make) .{0,120}permission denied",
        "the user of the run may not write there",
        "set work_dir, or HOME, to a folder that can be written there",
        _OWN,
    ),
    says(
        "io_error",
        "fatal",
        r"input/output error|errno 5\b|remote i/o error",
        "a disk or file server did not deliver",
        "look at the kernel log of that host and the health of the disk or server",
        _LINUX,
    ),
    says(
        "files_limit",
        "fatal",
        r"too many open files|errno 24\b|EMFILE",
        "the limit of open files is too low for the number of ranks, loaders and connections",
        "raise nofile: `--ulimit nofile=1048576` for a container, limits.conf or the daemon's unit on the host",
        _LINUX,
    ),
    says(
        "processes_limit",
        "fatal",
        r"resource temporarily unavailable|can't start new thread|cannot fork|pthread_create.{0,40}failed|errno 11\b",
        "the limit of processes or threads of the user or the container is reached",
        "raise nproc or the container's pids limit, or lower OMP_NUM_THREADS and the loader's workers",
        _LINUX,
    ),
    says(
        "host_memory",
        "fatal",
        r"cannot allocate memory|std::bad_alloc|\bMemoryError\b|errno 12\b|DefaultCPUAllocator.{0,40}memory"
        r"|oom[-_ ]kill(?!\w*:? 0\b)|out of memory handler|\bout of memory: killed process"
        r"|loader worker .{0,60}by signal: killed",
        "the host, or the memory limit of the container or job, has too little memory",
        "see what used it (samples, kernel log); fewer loader workers or ranks, or a higher limit",
        _LINUX,
    ),
    says(
        "engine_denied",
        "fatal",
        r"docker(?: daemon|\.sock| api).{0,120}permission denied|permission denied.{0,80}docker",
        "this user may not talk to the container engine",
        "add the user to the group docker, or allow `sudo -n docker`, then log in again",
        _DOCKER,
    ),
    says(
        "engine_down",
        "fatal",
        r"cannot connect to the docker daemon|failed to connect to the docker api|is the docker daemon running",
        "the container engine does not run on that host",
        "`systemctl start docker` there, and see its log when it does not stay",
        _DOCKER,
    ),
    says(
        "engine_silent",
        "fatal",
        r"`(?:docker|podman)\b[^`]*` was not done within",
        "the container engine does not answer on that host, so nothing can be entered, looked at or removed there",
        "`docker info` or `podman info` there; where that hangs too, restart the daemon, and look at its disk and log",
        _DOCKER,
    ),
    says(
        "image_login",
        "fatal",
        r"pull access denied|unauthorized: |authentication required|no basic auth credentials|denied: requested access",
        "the registry does not let this host have the image: wrong name, or a login is missing",
        "check container.image and the login in container.runtime.args.registry; pull it by hand there",
        _DOCKER,
    ),
    says(
        "image_rate_limit",
        "degrade",
        r"toomanyrequests|pull rate limit",
        "the registry has served too many pulls to this address",
        "log in (container.runtime.args.registry), use a mirror, or wait",
        _DOCKER,
    ),
    says(
        "image_missing",
        "fatal",
        r"manifest unknown|manifest for .{0,200} not found|no such image|image not known|no matching manifest",
        "there is no image of that name, tag or digest for this architecture",
        "check container.image; `docker manifest inspect` shows what there is",
        _DOCKER,
    ),
    says(
        "registry_unreachable",
        "fatal",
        r"(?:registry|docker\.io|/v2/).{0,160}(?:no such host|dial tcp|i/o timeout|tls handshake|connection refused)"
        r"|x509: certificate",
        "the host does not reach the registry, or does not trust its certificate",
        "check the network and proxy of the daemon there, or load the image by `docker load`",
        _DOCKER,
    ),
    says(
        "container_name_taken",
        "fatal",
        r"container name .{0,120}(?:is )?already in use|container of that name",
        "a container of that name exists: of another run or another person",
        "choose another container.name; `aorta clean` removes those of dead runs",
        _DOCKER,
    ),
    says(
        "container_paused",
        "degrade",
        r"its container \S+ is paused",
        "somebody paused the container while the run needed it; what is in it stands still",
        "let it go on (`docker unpause`, `podman unpause`), then run again",
        _DOCKER,
    ),
    says(
        "container_gone",
        "fatal",
        r"no such container|container \S+ (?:is not running|was restarted|cannot be entered)|container state improper",
        "the container was stopped, restarted or removed while the run needed it",
        "look at the engine's events and log on that host; a clean-up job is a usual cause",
        _DOCKER,
    ),
    says(
        "sudo_password",
        "fatal",
        r"sudo: .{0,40}(?:a password is required|a terminal is required)|(?:a password|a terminal) is required",
        "sudo asks for a password on that host, and nobody is there to type it",
        "allow the command without a password in sudoers (NOPASSWD)",
        "sudo's manual",
    ),
    says(
        "slurm_time_limit",
        "degrade",
        r"due to time limit",
        "the job's time was used up before the run was done",
        "ask for more time, or for fewer steps",
        _SLURM,
    ),
    says(
        "slurm_node_failure",
        "fatal",
        r"due to node failure|node_fail\b",
        "Slurm lost a node of the job",
        "`scontrol show node` on the one it names; its console log and power",
        _SLURM,
    ),
    says(
        "slurm_preempted",
        "degrade",
        r"due to preemption",
        "a job of higher priority took the nodes",
        "run it again, or in a partition that is not preempted",
        _SLURM,
    ),
    says(
        "slurm_refused",
        "fatal",
        r"unable to (?:allocate|create) (?:resources|step)|job violates accounting|invalid (?:account|partition|qos)"
        r"|requested node configuration is not available",
        "Slurm does not give what the job asks for: account, partition, GPUs or time",
        "compare with `sinfo` and `sacctmgr show assoc`; ask for less",
        _SLURM,
    ),
    says(
        "clock_wrong",
        "fatal",
        r"clock skew|certificate (?:has expired|is not yet valid)|clock .{0,40}(?:ahead|behind) by",
        "the clock of the host is wrong",
        "start time synchronisation there (`chronyc tracking`, `timedatectl`)",
        _LINUX,
    ),
    says(
        "program_missing",
        "fatal",
        r"(?:^|[\s/.:])(?:ba|da|z|k)?sh: .{1,120}: (?:command )?not found\s*$|executable file not found in \$PATH",
        "a program that the launch calls is not installed where it runs, or not on its PATH",
        "give its whole path, or install it into the image",
        "the shell's manual",
    ),
)
