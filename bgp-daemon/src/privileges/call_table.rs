//! The table of system calls: allowed and refused ones, with their names, and commands of calls that
//! have many.

use libc::{c_int, c_long};

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// A call: the name of its constant, and its number.
type Call = (&'static str, c_long);

/// The calls that are allowed with any arguments.
pub(super) const ALLOWED: &[Call] = calls![
    // Files, beside `fcntl` and `ioctl`: landlock decides which.
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
    SYS_preadv2 SYS_pwritev2 SYS_close SYS_close_range SYS_lseek SYS_openat SYS_openat2 SYS_fstat
    SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2 SYS_readlinkat
    SYS_getdents64 SYS_mkdirat SYS_getcwd SYS_unlinkat SYS_renameat SYS_renameat2
    SYS_ftruncate SYS_fallocate SYS_fsync SYS_fdatasync SYS_flock SYS_dup SYS_dup3
    SYS_pipe2 SYS_sendfile SYS_splice SYS_copy_file_range SYS_fadvise64 SYS_umask
    SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch
    // Waiting.
    SYS_eventfd2 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll
    SYS_pselect6 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_signalfd4
    // Sockets, beside `socket`.
    SYS_socketpair SYS_bind SYS_connect SYS_listen SYS_accept SYS_accept4 SYS_getsockname
    SYS_getpeername SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg
    SYS_setsockopt SYS_getsockopt SYS_shutdown
    // Memory, beside `mmap` and `mprotect`.
    SYS_munmap SYS_mremap SYS_madvise SYS_brk SYS_mincore SYS_msync SYS_membarrier
    SYS_memfd_create
    // Threads, beside `clone`.
    SYS_futex SYS_futex_waitv SYS_set_robust_list SYS_get_robust_list SYS_rseq
    SYS_set_tid_address SYS_exit SYS_exit_group SYS_sched_yield SYS_sched_getaffinity
    SYS_sched_getparam SYS_sched_getscheduler SYS_getpriority SYS_getcpu SYS_restart_syscall
    // The own process, beside `prlimit64`. A further filter only takes rights away.
    SYS_gettid SYS_getpid SYS_getppid SYS_getpgid SYS_getsid SYS_getuid SYS_geteuid SYS_getgid
    SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_getrusage SYS_times SYS_getrlimit
    SYS_sysinfo SYS_uname SYS_getrandom SYS_prctl SYS_seccomp SYS_capget SYS_capset
    SYS_wait4 SYS_waitid
    // Time.
    SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday
    SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_delete SYS_timer_getoverrun
    SYS_setitimer SYS_getitimer
    // Signals to itself.
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigpending
    SYS_rt_sigtimedwait SYS_sigaltstack
];

/// Older forms that only this architecture has.
#[cfg(target_arch = "x86_64")]
pub(super) const ALLOWED_OF_ARCH: &[Call] = calls![
    SYS_mkdir SYS_open SYS_stat SYS_lstat SYS_access SYS_readlink SYS_poll SYS_select SYS_epoll_wait
    SYS_epoll_create SYS_eventfd SYS_pipe SYS_dup2 SYS_unlink SYS_rename SYS_getdents
    SYS_arch_prctl SYS_time SYS_alarm SYS_getpgrp SYS_inotify_init SYS_signalfd
];
/// Older forms that only this architecture has.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const ALLOWED_OF_ARCH: &[Call] = &[];

/// The calls of a parent beside those of its parser, whatever their arguments are: it starts the parser
/// and passes signals on. Its filters hold for the parser, too, which is loaded and then confines
/// itself, so they allow memory to become code.
pub(super) const OF_PARENT: &[Call] = calls![
    SYS_execve SYS_kill SYS_tgkill SYS_mmap SYS_mprotect
    SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
];

/// Older forms that only this architecture has.
#[cfg(target_arch = "x86_64")]
pub(super) const OF_PARENT_OF_ARCH: &[Call] = calls![SYS_fork SYS_vfork];
/// Older forms that only this architecture has.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OF_PARENT_OF_ARCH: &[Call] = &[];

/// The allowed commands of `fcntl`, beside `F_SETFL`. Others choose a process that gets a signal when
/// a file has input, or lock files of other processes.
pub(super) const FCNTLS: &[c_int] = &[
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// The allowed commands of `ioctl`: flags and size of an own file, whether it is a terminal, and names
/// of interfaces. Others choose a process that gets signals, or put input into a terminal, which a
/// shell would then read.
pub(super) const IOCTLS: &[c_int] = &[
    FIONBIO,
    FIOCLEX,
    FIONCLEX,
    FIONREAD,
    TCGETS,
    TIOCGWINSZ,
    SIOCGIFNAME,
    SIOCGIFINDEX,
];

// The type of the constants of `libc` depends on the C library.
const FIONBIO: c_int = 0x5421;
const FIOCLEX: c_int = 0x5451;
const FIONCLEX: c_int = 0x5450;
const FIONREAD: c_int = 0x541b;
const TCGETS: c_int = 0x5401;
const TIOCGWINSZ: c_int = 0x5413;
const SIOCGIFNAME: c_int = 0x8910;
const SIOCGIFINDEX: c_int = 0x8933;

/// The calls that are refused with EPERM, whatever their arguments are.
pub(super) const REFUSED: &[Call] = calls![
    // Other programs and processes.
    SYS_execve SYS_execveat SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd
    SYS_pidfd_send_signal SYS_kill SYS_tkill SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_kcmp
    SYS_process_madvise
    // Owners, modes, times and attributes of files: landlock does not restrict them.
    SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_utimensat SYS_setxattr
    SYS_lsetxattr SYS_fsetxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
    // Mounts and namespaces, beside `unshare`.
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_move_mount SYS_open_tree SYS_fsopen
    SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr SYS_setns
    // The kernel.
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot SYS_bpf
    SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter
    SYS_io_uring_register SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_syslog
    SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_sethostname
    SYS_setdomainname SYS_personality
    // Keys, users and files by handle.
    SYS_keyctl SYS_add_key SYS_request_key SYS_setuid SYS_setgid SYS_setreuid SYS_setregid
    SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid SYS_setgroups SYS_open_by_handle_at
    SYS_name_to_handle_at SYS_mknodat SYS_fanotify_init
];

/// Older forms that only this architecture has.
#[cfg(target_arch = "x86_64")]
pub(super) const REFUSED_OF_ARCH: &[Call] = calls![
    SYS_fork SYS_vfork SYS_kexec_file_load SYS_iopl SYS_ioperm SYS_modify_ldt SYS_mknod SYS_uselib
    SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat
];
/// Older forms that only this architecture has.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const REFUSED_OF_ARCH: &[Call] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_both_allowed_and_refused() {
        let allowed: Vec<&Call> = ALLOWED.iter().chain(ALLOWED_OF_ARCH).collect();
        for refused in REFUSED.iter().chain(REFUSED_OF_ARCH) {
            assert!(!allowed.contains(&refused), "{refused:?}");
        }
    }
}
