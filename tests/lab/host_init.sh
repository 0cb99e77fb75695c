#!/bin/bash
# The first process of one host, in namespaces of its own: makes a private root, then starts the daemons on their
# default paths and ports. Settings come in the environment (keeper.py).
set -eu
hostname "$LAB_NAME"
own=$LAB_FOLDER/$LAB_NAME

private_root() {
    mkdir -p "$own/root"
    mount -t tmpfs -o size=4g,mode=755 "lab-$LAB_NAME" "$own/root"
    mkdir "$own"/root/{upper,work,merged,docker,podman}
    root=$own/root/merged
    mount -t overlay overlay -o "lowerdir=/,upperdir=$own/root/upper,workdir=$own/root/work" "$root"
    private_devices
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    [ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 run "$root/run"
    mount -t tmpfs -o mode=1777 tmp "$root/tmp"
    # overlay2 wants a layer store that is no overlay
    mkdir -p "$root"/var/lib/{docker,containers}
    mount --bind "$own/root/docker" "$root/var/lib/docker"
    mount --bind "$own/root/podman" "$root/var/lib/containers"
    # what the containers' image consists of
    bind_read_only / "$root/var/lib/lab-root"
    local folder
    while read -r folder; do
        [ -z "$folder" ] || bind_read_only "$folder" "$root$folder"
    done <<<"$LAB_BINDS"
    mkdir -p "$root/shared"
    mount --bind "$LAB_FOLDER/shared" "$root/shared"
}

bind_read_only() {
    mkdir -p "$2"
    mount --bind "$1" "$2"
    mount -o remount,bind,ro "$2"
}

# No devtmpfs: it would show the machine's disks. The GPUs are character devices that behave as /dev/null.
private_devices() {
    local dev=$root/dev name mode major minor
    mount -t tmpfs -o mode=755,size=16m dev "$dev"
    while read -r name mode major minor; do
        mknod -m "$mode" "$dev/$name" c "$major" "$minor"
    done <<<'null 666 1 3
zero 666 1 5
full 666 1 7
random 666 1 8
urandom 666 1 9
kmsg 644 1 11
tty 666 5 0
fuse 666 10 229
kfd 660 1 3'
    mkdir -p "$dev"/{pts,shm,mqueue,dri}
    for ((minor = 128; minor < 128 + LAB_NUM_GPUS; minor++)); do
        mknod -m 660 "$dev/dri/renderD$minor" c 1 3
    done
    chgrp -R video "$dev/kfd" "$dev/dri"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
    ln -s pts/ptmx "$dev/ptmx"
    ln -s /proc/self/fd "$dev/fd"
    ln -s /proc/self/fd/0 "$dev/stdin"
    ln -s /proc/self/fd/1 "$dev/stdout"
    ln -s /proc/self/fd/2 "$dev/stderr"
    mount -t tmpfs -o mode=1777 shm "$dev/shm"
    mount -t mqueue mqueue "$dev/mqueue"
}

identity() {
    echo "$LAB_NAME" >"$root/etc/hostname"
    cp "$LAB_FOLDER/hosts" "$root/etc/hosts"
    # A shell's start-up files of the machine's own root cost time and may rewrite PATH in each session.
    rm -rf "$root"/root/{.ssh,.docker,.bashrc,.profile,.bash_profile}
    mkdir -p "$root/root/.cache"
    mount -t tmpfs -o mode=700 cache "$root/root/.cache" # work folders of runs on the machine itself are not this host's
    chmod 711 "$root/root" # the environment that runs the tests may lie there, and the user `lab` runs it too
    install -D -m 600 "$LAB_FOLDER/id.pub" "$root/root/.ssh/authorized_keys"
    chmod 700 "$root/root/.ssh"
    rm -rf "$root"/etc/ssh/{ssh_host_*,sshd_config,sshd_config.d}
    install -D -m 644 "$LAB_FOLDER/sshd_config" "$root/etc/ssh/sshd_config"
    mkdir "$root/etc/ssh/sshd_config.d"
    install -m 600 "$own/ssh_host_ed25519_key" "$root/etc/ssh/"
    install -m 755 "$LAB_CODE/runc-lab" "$root/usr/local/bin/"
    if [ -n "$LAB_SLURM" ]; then
        rm -rf "$root/etc/slurm"
        cp -r "$LAB_FOLDER/slurm" "$root/etc/slurm"
    fi
}

switch_root() {
    mkdir -p "$root/.old"
    cd "$root"
    pivot_root . .old
    cd /
    umount -l /.old
    rmdir /.old
}

plug_in() {
    ip link set lo up
    until [ -e /sys/class/net/eth0 ]; do sleep 0.01; done
    ip addr add "$LAB_ADDRESS/24" dev eth0
    ip link set eth0 up
}

add_user() {
    # '*' and not '!': sshd without PAM takes the latter for a locked account
    useradd --create-home --uid 7001 --user-group --groups video --password '*' --shell /bin/bash lab
    install -D -m 600 -o lab -g lab /root/.ssh/authorized_keys /home/lab/.ssh/authorized_keys
    chown lab: /home/lab/.ssh
    chmod 700 /home/lab/.ssh
    mkdir -p /etc/sudoers.d
    echo 'lab ALL=(root) NOPASSWD: /usr/bin/dmesg' >/etc/sudoers.d/lab
    chmod 440 /etc/sudoers.d/lab
}

start_slurm() {
    mkdir -p /var/{lib,log}/munge /run/munge /var/log/slurm /var/spool/{slurmd,slurmctld}
    rm -f /var/log/munge/*
    install -m 400 -o munge -g munge /etc/slurm/munge.key /etc/munge/munge.key
    chown munge: /var/{lib,log}/munge /run/munge
    chmod 700 /var/log/munge
    # started as root it finds its log "insecure: invalid ownership"
    setpriv --reuid munge --regid munge --clear-groups munged --num-threads=2
    [ "$LAB_SLURM" != head ] || slurmctld -c
    slurmd -N "$LAB_NAME"
}

start_docker() {
    cat >/usr/local/sbin/lab-dockerd <<DOCKERD
#!/bin/sh
exec /usr/sbin/dockerd --bridge=none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \\
    --userland-proxy=false --storage-driver=overlay2 --exec-opt native.cgroupdriver=cgroupfs \\
    --cgroup-parent=$LAB_CGROUP --shutdown-timeout 2 \\
    --add-runtime lab=/usr/local/bin/runc-lab --default-runtime lab >>/var/log/dockerd.log 2>&1 </dev/null
DOCKERD
    chmod 755 /usr/local/sbin/lab-dockerd
    /usr/local/sbin/lab-dockerd &
}

# Podman is no daemon: all that it needs is settings, and the image.
prepare_podman() {
    rm -rf /etc/containers/{storage,containers}.conf
    mkdir -p /etc/containers/registries.conf.d
    cat >/etc/containers/storage.conf <<'STORAGE'
[storage]
driver = "overlay"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
[storage.options.overlay]
skip_mount_home = "true" # its own mount would hide the one that fills the image
STORAGE
    cat >/etc/containers/containers.conf <<'CONTAINERS'
[containers]
cgroups = "no-conmon"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "/usr/local/bin/runc-podman"
CONTAINERS
    # as dockerd takes every registry on this machine
    printf '[[registry]]\nlocation = "127.0.0.1:5000"\ninsecure = true\n' >/etc/containers/registries.conf.d/lab.conf
    printf '#!/bin/sh\nLAB_CGROUP=%s exec /usr/local/bin/runc-lab "$@"\n' "$LAB_CGROUP" >/usr/local/bin/runc-podman
    chmod 755 /usr/local/bin/runc-podman
    head -c 10240 /dev/zero | podman import --quiet --change "ENV PATH=$PATH" --change 'CMD ["bash"]' - lab/machine:1
    mount --bind /var/lib/lab-root "$(podman image inspect --format '{{.GraphDriver.Data.UpperDir}}' lab/machine:1)"
}

private_root
identity
switch_root
plug_in
mkdir -p /run/{sshd,lock,docker}
export HOME=/root USER=root LOGNAME=root
[ -z "$LAB_DOCKER" ] || start_docker
[ -z "$LAB_PODMAN" ] || prepare_podman
add_user
/usr/sbin/sshd
touch /run/lab-host
[ -z "$LAB_SLURM" ] || start_slurm
# The first process of a pid namespace has to stay, and to reap what loses its parent, as bash does.
while :; do
    sleep 3600 &
    wait $! || :
done
