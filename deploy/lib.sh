# Functions of deploy/run and deploy/test: installing missing packages, private servers, and
# processes that end with the script. Sourced by bash.
# shellcheck shell=bash disable=SC2034

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

say() { printf '%s\n' "$*"; }
note() { printf '\033[2m%s\033[0m\n' "$*"; }
fail() {
    printf 'carillon: %s\n' "$*" >&2
    exit 1
}

if [[ ! -t 1 ]]; then
    note() { printf '%s\n' "$*"; }
fi

# ── Debian packages ─────────────────────────────────────────────────────────────────────────────

build_packages=(
    ca-certificates pkg-config binutils libc6-dev libgcc-12-dev libstdc++-12-dev
    libuv1-dev libcurl4-openssl-dev libnghttp2-dev libssl-dev libpq-dev librdkafka-dev
    libexpat1-dev libpcre2-dev zlib1g-dev libzstd-dev libwslay-dev
)
server_packages=(curl jq kcat postgresql procps)
test_packages=(openssl python3 python3-venv nghttp2-client nodejs shellcheck chromium)
kafka_packages=(openjdk-17-jre-headless)
java_packages=(openjdk-17-jdk-headless)

installed() { [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]; }

# Runs a command as root: directly, or through sudo.
as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null; then
        if [[ -t 0 ]]; then sudo "$@"; else sudo -n "$@"; fi
    else
        fail "needs root to install packages, and there is no sudo: run as root once: apt-get install $*"
    fi
}

# missing_packages PACKAGE…: sets `missing` to those that are not installed.
missing_packages() {
    local package
    missing=()
    for package in "$@"; do
        case "$package" in
            openjdk-*-jdk-*) command -v javac >/dev/null && continue ;;
            openjdk-*) command -v java >/dev/null && continue ;;
            curl | jq | kcat) command -v "$package" >/dev/null && continue ;;
            nodejs) command -v node >/dev/null && continue ;;
            nginx) [[ -x /usr/sbin/nginx ]] && continue ;;
            postgresql) postgres_bin >/dev/null && continue ;;
        esac
        installed "$package" || missing+=("$package")
    done
}

# ensure_packages PACKAGE…: installs the missing ones, and prints them. Immediate if none is
# missing. Two concurrent scripts take turns, as apt refuses the second.
ensure_packages() {
    local missing lock
    missing_packages "$@"
    ((${#missing[@]} > 0)) || return 0
    exec {lock}>"${TMPDIR:-/tmp}/carillon-packages-$(id -u)"
    flock "$lock"
    missing_packages "$@"
    if ((${#missing[@]} > 0)); then install_packages "${missing[@]}"; fi
    exec {lock}>&-
}

install_packages() {
    local missing=("$@")
    command -v apt-get >/dev/null || fail "no apt-get here; please install: ${missing[*]}"
    if ((EUID != 0)) && ! command -v sudo >/dev/null; then
        fail "needs root, and there is no sudo; please run as root: apt-get install ${missing[*]}"
    fi
    note "installing ${missing[*]}"
    # Debian's package starts a cluster of its own; only the programs are needed here.
    local no_cluster=/etc/postgresql-common/createcluster.d/carillon.conf hold_cluster=false
    if [[ " ${missing[*]} " == *" postgresql "* && ! -e /etc/postgresql-common ]]; then
        hold_cluster=true
        as_root mkdir -p "${no_cluster%/*}"
        printf 'create_main_cluster = false\n' | as_root tee "$no_cluster" >/dev/null
    fi
    # RUNLEVEL=1 keeps packages such as nginx from starting their server.
    local log
    log="$(mktemp)"
    if ! {
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
            as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q install -y \
                --no-install-recommends "${missing[@]}"
    } </dev/null >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "apt-get could not install ${missing[*]}"
    fi
    rm -f "$log"
    if $hold_cluster; then as_root rm -f "$no_cluster"; fi
}

need_swift() {
    command -v swift >/dev/null || fail "no Swift toolchain on PATH (6.3: https://swift.org/install)"
}

# ── Processes ───────────────────────────────────────────────────────────────────────────────────

pids=()      # in the order of their start
pid_names=() # the same, for messages
private_folders=()

# start NAME LOGFILE COMMAND…: starts it in the background, in a session of its own so that Ctrl-C
# reaches only this script, which then stops everything in order. Sets `started` to the process id.
start() {
    local name="$1" log="$2"
    shift 2
    # The log is emptied before the process starts: a wait for a line must not find one of an
    # earlier process.
    : >"$log"
    setsid "$@" >>"$log" 2>&1 </dev/null &
    started=$!
    pids+=("$started")
    pid_names+=("$name")
}

running() { kill -0 "$1" 2>/dev/null; }

# stop_pid PID SIGNAL SECONDS: sends the signal, waits, and then kills the process.
stop_pid() {
    local pid="$1" signal="$2" tenths=$(($3 * 20))
    running "$pid" || return 0
    # Without messages: bash reports a killed job.
    {
        kill "-$signal" "$pid" || true
        while ((tenths-- > 0)) && running "$pid"; do sleep 0.05; done
        if running "$pid"; then kill -KILL "$pid" || true; fi
        wait "$pid" || true
    } 2>/dev/null
}

# The last started is stopped first: services, then the broker, then Postgres.
stop_everything() {
    local index name signal
    for ((index = ${#pids[@]} - 1; index >= 0; index--)); do
        name="${pid_names[index]}"
        signal=TERM
        [[ "$name" == postgres ]] && signal=INT # Postgres' "fast" shutdown
        # Its data is thrown away, and to close the logs of a test run takes it half a minute.
        [[ "$name" == kafka ]] && signal=KILL
        stop_pid "${pids[index]}" "$signal" 30
    done
    pids=()
    pid_names=()
    rm -rf ${private_folders[@]+"${private_folders[@]}"}
    private_folders=()
}

at_exit=() # a command for the end of the script; the exit status is in `ended`

# Stops everything at the end of the script, by itself or by a signal: runs `at_exit`, then stops
# all that was started. The run folder is removed after a success.
stop_at_exit() {
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

finish() {
    ended=$?
    trap - EXIT INT TERM HUP
    set +e
    if ((${#at_exit[@]} > 0)); then "${at_exit[@]}"; fi
    stop_everything
    if [[ -n "${run_folder:-}" ]]; then
        if ((ended == 0)); then rm -rf "$run_folder"; else note "logs: $run_folder" >&2; fi
    fi
    exit "$ended"
}

# stop_service PID: stops one service; a later one is started again.
stop_service() {
    stop_pid "$1" TERM 30
    forget "$1"
}

# forget PID: removes an ended process, whose number may soon be reused.
forget() {
    local index
    for index in "${!pids[@]}"; do
        [[ "${pids[index]}" == "$1" ]] || continue
        pids=("${pids[@]:0:index}" "${pids[@]:index+1}")
        pid_names=("${pid_names[@]:0:index}" "${pid_names[@]:index+1}")
        return
    done
}

# wait_for PID SECONDS COMMAND…: waits until the command succeeds, the process has died, or the time
# is up.
wait_for() {
    local pid="$1" deadline=$((SECONDS + $2))
    shift 2
    until "$@"; do
        running "$pid" && ((SECONDS < deadline)) || return 1
        sleep 0.05
    done
}

# Prints a TCP port of 127.0.0.1 without a listener, below the range of outgoing connections.
free_port() {
    local port tries
    for ((tries = 0; tries < 200; tries++)); do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    fail "no free port"
}

# ── Postgres ────────────────────────────────────────────────────────────────────────────────────

# Prints the folder of the newest Postgres' programs, 15 or later.
postgres_bin() {
    local folder best=
    for folder in /usr/lib/postgresql/*/bin; do
        [[ -x "$folder/initdb" ]] || continue
        [[ "$(basename "$(dirname "$folder")")" -ge 15 ]] && best="$folder"
    done
    [[ -n "$best" ]] && echo "$best"
}

# Runs a command as the user that runs Postgres: the current one, or `postgres` instead of root,
# which Postgres refuses.
as_postgres() {
    if ((EUID == 0)); then
        setpriv --reuid postgres --regid postgres --init-groups -- "$@"
    else
        "$@"
    fi
}

postgres_auth=scram-sha-256

# start_postgres FOLDER [NAME=VALUE…]: starts a private server with data in FOLDER (or in a
# temporary folder, if the unprivileged user cannot reach that), on a port of its own. Sets
# DATABASE_URL. The data is temporary, so it is not flushed to disk; a commit still outlives the
# server's processes, which may be killed to test Carillon. The settings after the folder take
# precedence. A script may set `postgres_auth`, the form of its passwords, before.
start_postgres() {
    local folder="$1" bin password log port try command setting settings=()
    shift
    for setting in "$@"; do settings+=(-c "$setting"); done
    bin="$(postgres_bin)" || fail "no Postgres 15 or later under /usr/lib/postgresql"
    if ((EUID == 0)) && ! getent passwd postgres >/dev/null; then
        as_root useradd --system --no-create-home --shell /usr/sbin/nologin postgres
    fi
    mkdir -p "$folder"
    if ((EUID == 0)); then
        chown postgres: "$folder"
        if ! as_postgres test -w "$folder/."; then
            folder="$(mktemp -d /tmp/carillon-postgres.XXXXXX)"
            private_folders+=("$folder")
            chown postgres: "$folder"
        fi
    fi
    chmod 700 "$folder"
    password="$(head -c 18 /dev/urandom | base64 | tr '+/' 'AB')"
    log="$run_folder/postgres.log"
    printf '%s\n' "$password" >"$folder/password"
    if ((EUID == 0)); then chown postgres: "$folder/password"; fi
    (cd / && as_postgres "$bin/initdb" --pgdata="$folder/data" --username=carillon \
        --auth="$postgres_auth" --pwfile="$folder/password" --encoding=UTF8 --locale=C.UTF-8 \
        --no-sync) >"$run_folder/initdb.log" 2>&1 || {
        cat "$run_folder/initdb.log" >&2
        fail "initdb failed"
    }
    rm -f "$folder/password"
    for ((try = 0; try < 5; try++)); do
        port="$(free_port)"
        command=("$bin/postgres" -D "$folder/data" -p "$port"
            -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off
            -c full_page_writes=off -c max_connections=300 -c shared_buffers=128MB
            ${settings[@]+"${settings[@]}"})
        if ((EUID == 0)); then
            command=(setpriv --reuid postgres --regid postgres --init-groups -- "${command[@]}")
        fi
        start postgres "$log" "${command[@]}"
        if wait_for "$started" 30 grep -q 'ready to accept connections' "$log"; then
            export DATABASE_URL="postgresql://carillon:$password@127.0.0.1:$port/postgres"
            # shellcheck disable=SC2034
            postgres_data="$folder/data"
            return
        fi
        unset 'pids[-1]' 'pid_names[-1]'
    done
    cat "$log" >&2
    fail "Postgres did not start"
}

# ── Kafka ───────────────────────────────────────────────────────────────────────────────────────

# start_kafka FOLDER: starts one KRaft node from KAFKA_HOME, on ports of its own. Sets
# KAFKA_BOOTSTRAP_SERVERS. Writes nothing into KAFKA_HOME.
#
# The cleaner's buffer is 128 MB by default. In a small heap it keeps the collector marking, a core for
# 100 ms every two seconds, which delays all others on two cores.
start_kafka() {
    local folder="$1" broker controller try log="$run_folder/kafka.log"
    [[ -x "$KAFKA_HOME/bin/kafka-server-start.sh" ]] ||
        fail "KAFKA_HOME=$KAFKA_HOME has no bin/kafka-server-start.sh"
    export LOG_DIR="$folder/logs"
    for ((try = 0; try < 5; try++)); do
        rm -rf "$folder"
        mkdir -p "$folder/logs"
        broker="$(free_port)"
        controller="$(free_port)"
        cat >"$folder/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$broker,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$broker
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$folder/data
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=4194304
PROPERTIES
        KAFKA_HEAP_OPTS="-Xmx512M" "$KAFKA_HOME/bin/kafka-storage.sh" format \
            -t "$(head -c 16 /dev/urandom | base64 | tr '+/' 'AB' | cut -c 1-22)" \
            -c "$folder/server.properties" >"$run_folder/kafka-format.log" 2>&1 || {
            cat "$run_folder/kafka-format.log" >&2
            fail "the Kafka storage could not be formatted"
        }
        start kafka "$log" env KAFKA_HEAP_OPTS="-Xms512M -Xmx512M" \
            "$KAFKA_HOME/bin/kafka-server-start.sh" "$folder/server.properties"
        if wait_for "$started" 60 kafka_answers "127.0.0.1:$broker"; then
            export KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:$broker"
            return
        fi
        unset 'pids[-1]' 'pid_names[-1]'
    done
    tail -n 40 "$log" >&2
    fail "Kafka did not start"
}

kafka_answers() {
    (exec 3<>"/dev/tcp/${1%:*}/${1#*:}") 2>/dev/null || return 1
    kcat -L -b "$1" -m 2 >/dev/null 2>&1
}

# ── The checkout ────────────────────────────────────────────────────────────────────────────────

# The only form of build, so that no command invalidates another's result; tests add
# `--build-tests`. It is the release of the image, except for the symbols that `@testable import`
# needs, and for modules that Package.swift does not optimize in a quick build. What measures sets
# CARILLON_BUILD=full before it reads this file.
export CARILLON_BUILD="${CARILLON_BUILD:-quick}"
build_command=(swift build -c release -Xswiftc -enable-testing --package-path "$root")

# make_run_folder KIND: makes a folder of this run under .carillon, after removing those of ended
# scripts.
make_run_folder() {
    local folder pid
    mkdir -p "$root/.carillon/$1"
    for folder in "$root/.carillon/$1"/*/; do
        pid="$(basename "$folder")"
        [[ "$pid" =~ ^[0-9]+$ ]] || continue
        running "$pid" || rm -rf "$folder"
    done
    run_folder="$root/.carillon/$1/$$"
    mkdir -p "$run_folder"
}

# make_data_folder: makes a folder for data that this run throws away, which `finish` removes, and sets
# `data_folder`. It is in memory if the machine has 8 GB to spare: hundreds of databases come and go in
# a test run, each of a thousand files, which costs a disk's file system a tenth of the run.
make_data_folder() {
    local folder room spare
    data_folder="$run_folder"
    [[ "$(stat -f -c %T /dev/shm 2>/dev/null)" == tmpfs ]] || return 0
    # Of an ended script of this user: other users may put links there.
    for folder in /dev/shm/carillon-*; do
        [[ -d "$folder" && ! -L "$folder" && -O "$folder" && "$folder" =~ -([0-9]+)\. ]] || continue
        running "${BASH_REMATCH[1]}" || rm -rf "$folder" || true
    done
    room="$(df --output=avail --block-size=1G /dev/shm | tail -n 1)"
    spare="$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)"
    ((room >= 8 && spare >= 8)) || return 0
    data_folder="$(mktemp -d "/dev/shm/carillon-$$.XXXXXX")"
    private_folders+=("$data_folder")
    chmod 711 "$data_folder"
}
