//! The table of Linux's calls.
//!
//! ```text
//!   rax: number, rdi rsi rdx r10 r8 r9: arguments ─▶ table ─▶ memory · bytes · paths · process · signals · time · system
//!                                              rax: result, or minus the error ◀─┘
//! ```
//!
//! **Not here**: what memory calls mean (`foliant-linux`).

mod bytes;
mod capabilities;
mod copies;
mod events;
mod facts;
mod futexes;
mod ids;
mod limits;
mod listed;
mod locks;
mod memory;
mod messages;
mod mounts;
mod numbers;
mod options;
mod paths;
mod policies;
mod poll;
mod process;
mod remote;
mod scheduling;
mod shared;
mod signals;
mod sockets;
mod system;
mod time;
mod timers;
mod who;

use super::signal::CUT;
use super::thread::Thread;
use super::world;
use crate::memory::manager;
use crate::{heap, say};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_files::Refused;
use foliant_linux::Errno;
use linux_raw_sys::general::*;

/// What a call answers.
type Answer = Result<u64, Errno>;
/// A call: the thread that makes it, and its arguments.
type Call = fn(&Arc<Thread>, [u64; 6]) -> Answer;

static CALLS: AtomicU64 = AtomicU64::new(0);

/// The call of a number.
#[allow(non_upper_case_globals)] // the numbers' names are Linux's
fn find(number: u32) -> Option<Call> {
    Some(match number {
        __NR_brk => memory::brk,
        __NR_madvise => memory::madvise,
        __NR_memfd_create => memory::memfd_create,
        __NR_mincore => memory::mincore,
        __NR_mlock => memory::mlock,
        __NR_mlock2 => memory::mlock2,
        __NR_mlockall => memory::mlockall,
        __NR_mmap => memory::mmap,
        __NR_mprotect => memory::mprotect,
        __NR_mremap => memory::mremap,
        __NR_mseal => memory::mseal,
        __NR_msync => memory::msync,
        __NR_munlock => memory::munlock,
        __NR_munlockall => memory::munlockall,
        __NR_munmap => memory::munmap,
        __NR_remap_file_pages => memory::remap_file_pages,
        __NR_userfaultfd => memory::userfaultfd,

        __NR_get_mempolicy => policies::get_mempolicy,
        __NR_mbind => policies::mbind,
        __NR_migrate_pages => policies::migrate_pages,
        __NR_move_pages => policies::move_pages,
        __NR_set_mempolicy => policies::set_mempolicy,
        __NR_set_mempolicy_home_node => policies::set_mempolicy_home_node,

        __NR_shmat => shared::shmat,
        __NR_shmctl => shared::shmctl,
        __NR_shmdt => shared::shmdt,
        __NR_shmget => shared::shmget,

        __NR_pidfd_open => remote::pidfd_open,
        __NR_pidfd_send_signal => remote::pidfd_send_signal,
        __NR_process_madvise => remote::process_madvise,
        __NR_process_mrelease => remote::process_mrelease,
        __NR_process_vm_readv => remote::process_vm_readv,
        __NR_process_vm_writev => remote::process_vm_writev,

        __NR_copy_file_range => copies::copy_file_range,
        __NR_sendfile => copies::sendfile,

        __NR_cachestat => bytes::cachestat,
        __NR_close => bytes::close,
        __NR_close_range => bytes::close_range,
        __NR_dup => bytes::dup,
        __NR_dup2 => bytes::dup2,
        __NR_dup3 => bytes::dup3,
        __NR_fadvise64 => bytes::fadvise64,
        __NR_fallocate => bytes::fallocate,
        __NR_fcntl => bytes::fcntl,
        __NR_fdatasync | __NR_fsync => bytes::fsync,
        __NR_flock => locks::flock,
        __NR_ftruncate => bytes::ftruncate,
        __NR_ioctl => bytes::ioctl,
        __NR_lseek => bytes::lseek,
        __NR_pipe => bytes::pipe,
        __NR_pipe2 => bytes::pipe2,
        __NR_pread64 => bytes::pread64,
        __NR_preadv => bytes::preadv,
        __NR_pwrite64 => bytes::pwrite64,
        __NR_pwritev => bytes::pwritev,
        __NR_read => bytes::read,
        __NR_readahead => bytes::readahead,
        __NR_readv => bytes::readv,
        __NR_sync => bytes::sync,
        __NR_truncate => bytes::truncate,
        __NR_write => bytes::write,
        __NR_vmsplice => bytes::vmsplice,
        __NR_writev => bytes::writev,

        __NR_epoll_create => events::epoll_create,
        __NR_epoll_create1 => events::epoll_create1,
        __NR_epoll_ctl => events::epoll_ctl,
        __NR_epoll_pwait => events::epoll_pwait,
        __NR_epoll_pwait2 => events::epoll_pwait2,
        __NR_epoll_wait => events::epoll_wait,
        __NR_eventfd => events::eventfd,
        __NR_eventfd2 => events::eventfd2,
        __NR_signalfd => events::signalfd,
        __NR_signalfd4 => events::signalfd4,
        __NR_timerfd_create => events::timerfd_create,
        __NR_timerfd_gettime => events::timerfd_gettime,
        __NR_timerfd_settime => events::timerfd_settime,

        __NR_accept => sockets::accept,
        __NR_accept4 => sockets::accept4,
        __NR_bind => sockets::bind,
        __NR_connect => sockets::connect,
        __NR_getpeername => sockets::getpeername,
        __NR_getsockname => sockets::getsockname,
        __NR_getsockopt => options::getsockopt,
        __NR_listen => sockets::listen,
        __NR_recvfrom => messages::recvfrom,
        __NR_recvmmsg => messages::recvmmsg,
        __NR_recvmsg => messages::recvmsg,
        __NR_sendmmsg => messages::sendmmsg,
        __NR_sendmsg => messages::sendmsg,
        __NR_sendto => messages::sendto,
        __NR_setsockopt => options::setsockopt,
        __NR_shutdown => sockets::shutdown,
        __NR_socket => sockets::socket,
        __NR_socketpair => sockets::socketpair,

        __NR_alarm => timers::alarm,
        __NR_getitimer => timers::getitimer,
        __NR_setitimer => timers::setitimer,
        __NR_timer_create => timers::timer_create,
        __NR_timer_delete => timers::timer_delete,
        __NR_timer_getoverrun => timers::timer_getoverrun,
        __NR_timer_gettime => timers::timer_gettime,
        __NR_timer_settime => timers::timer_settime,

        __NR_poll => poll::poll,
        __NR_ppoll => poll::ppoll,
        __NR_pselect6 => poll::pselect6,
        __NR_select => poll::select,

        __NR_access => paths::access,
        __NR_chdir => paths::chdir,
        __NR_chmod => facts::chmod,
        __NR_creat => paths::creat,
        __NR_faccessat => paths::faccessat,
        __NR_faccessat2 => paths::faccessat2,
        __NR_fchdir => paths::fchdir,
        __NR_fchmod => facts::fchmod,
        __NR_chown => facts::chown,
        __NR_fchmodat => facts::fchmodat,
        __NR_fchown => facts::fchown,
        __NR_fchownat => facts::fchownat,
        __NR_lchown => facts::lchown,
        __NR_fstat => facts::fstat,
        __NR_fstatfs => facts::fstatfs,
        __NR_getcwd => paths::getcwd,
        __NR_getdents64 => paths::getdents64,
        __NR_link => paths::link,
        __NR_linkat => paths::linkat,
        __NR_lstat => facts::lstat,
        __NR_mkdir => paths::mkdir,
        __NR_mkdirat => paths::mkdirat,
        __NR_newfstatat => facts::newfstatat,
        __NR_open => paths::open,
        __NR_openat => paths::openat,
        __NR_readlink => paths::readlink,
        __NR_readlinkat => paths::readlinkat,
        __NR_rename => paths::rename,
        __NR_renameat => paths::renameat,
        __NR_renameat2 => paths::renameat2,
        __NR_rmdir => paths::rmdir,
        __NR_stat => facts::stat,
        __NR_statfs => facts::statfs,
        __NR_statx => facts::statx,
        __NR_symlink => paths::symlink,
        __NR_symlinkat => paths::symlinkat,
        __NR_umask => paths::umask,
        __NR_unlink => paths::unlink,
        __NR_unlinkat => paths::unlinkat,
        __NR_utimensat => facts::utimensat,

        __NR_arch_prctl => process::arch_prctl,
        __NR_execve => process::execve,
        __NR_clone => process::clone,
        __NR_clone3 => process::clone3,
        __NR_exit => process::exit,
        __NR_exit_group => process::exit_group,
        __NR_fork => process::fork,
        __NR_vfork => process::vfork,
        __NR_wait4 => process::wait4,
        __NR_waitid => process::waitid,
        __NR_futex => futexes::futex,
        __NR_futex_waitv => futexes::futex_waitv,
        __NR_getegid => ids::getegid,
        __NR_geteuid => ids::geteuid,
        __NR_getgid => ids::getgid,
        __NR_getuid => ids::getuid,
        __NR_getpgid => ids::getpgid,
        __NR_getpgrp => ids::getpgrp,
        __NR_getpid => ids::getpid,
        __NR_getppid => ids::getppid,
        __NR_getsid => ids::getsid,
        __NR_gettid => ids::gettid,
        __NR_setpgid => ids::setpgid,
        __NR_setsid => ids::setsid,
        __NR_prctl => process::prctl,
        __NR_rseq => process::rseq,
        __NR_set_robust_list => process::set_robust_list,
        __NR_set_tid_address => process::set_tid_address,

        __NR_kill => signals::kill,
        __NR_pause => signals::pause,
        __NR_rt_sigpending => signals::rt_sigpending,
        __NR_rt_sigreturn => signals::rt_sigreturn,
        __NR_rt_sigsuspend => signals::rt_sigsuspend,
        __NR_rt_sigtimedwait => signals::rt_sigtimedwait,
        __NR_tkill => signals::tkill,
        __NR_rt_sigaction => signals::rt_sigaction,
        __NR_rt_sigprocmask => signals::rt_sigprocmask,
        __NR_sigaltstack => signals::sigaltstack,
        __NR_tgkill => signals::tgkill,

        __NR_clock_getres => time::clock_getres,
        __NR_clock_gettime => time::clock_gettime,
        __NR_clock_nanosleep => time::clock_nanosleep,
        __NR_gettimeofday => time::gettimeofday,
        __NR_nanosleep => time::nanosleep,
        __NR_time => time::time,
        __NR_times => time::times,

        __NR_getrlimit => limits::getrlimit,
        __NR_getrusage => limits::getrusage,
        __NR_prlimit64 => limits::prlimit64,
        __NR_setrlimit => limits::setrlimit,

        __NR_getcpu => scheduling::getcpu,
        __NR_getpriority => scheduling::getpriority,
        __NR_membarrier => scheduling::membarrier,
        __NR_sched_get_priority_max => scheduling::sched_get_priority_max,
        __NR_sched_get_priority_min => scheduling::sched_get_priority_min,
        __NR_sched_getaffinity => scheduling::sched_getaffinity,
        __NR_sched_getattr => scheduling::sched_getattr,
        __NR_sched_getparam => scheduling::sched_getparam,
        __NR_sched_getscheduler => scheduling::sched_getscheduler,
        __NR_sched_rr_get_interval => scheduling::sched_rr_get_interval,
        __NR_sched_setaffinity => scheduling::sched_setaffinity,
        __NR_sched_setattr => scheduling::sched_setattr,
        __NR_sched_setparam => scheduling::sched_setparam,
        __NR_sched_setscheduler => scheduling::sched_setscheduler,
        __NR_sched_yield => scheduling::sched_yield,
        __NR_setpriority => scheduling::setpriority,

        __NR_mount => mounts::mount,
        __NR_umount2 => mounts::umount2,

        __NR_capget => capabilities::capget,
        __NR_capset => capabilities::capset,
        __NR_getgroups => ids::getgroups,
        __NR_getresgid => ids::getresgid,
        __NR_getresuid => ids::getresuid,
        __NR_setfsgid => ids::setfsgid,
        __NR_setfsuid => ids::setfsuid,
        __NR_setgid => ids::setgid,
        __NR_setgroups => ids::setgroups,
        __NR_setregid => ids::setregid,
        __NR_setresgid => ids::setresgid,
        __NR_setresuid => ids::setresuid,
        __NR_setreuid => ids::setreuid,
        __NR_setuid => ids::setuid,
        __NR_getrandom => system::getrandom,
        __NR_personality => system::personality,
        __NR_reboot => system::reboot,
        __NR_setdomainname => system::setdomainname,
        __NR_sethostname => system::sethostname,
        __NR_sysinfo => system::sysinfo,
        __NR_uname => system::uname,
        _ => return None,
    })
}

/// Carries out the call that a thread left ring 3 for.
pub(super) fn answer(thread: &Arc<Thread>) {
    let asked = thread.registers();
    CALLS.fetch_add(1, Ordering::Relaxed);
    // A program that begins has other registers, and no result goes there.
    thread.set_registers(|registers| registers.rax = 0);
    let arguments = [asked.rdi, asked.rsi, asked.rdx, asked.r10, asked.r8, asked.r9];
    let found = u32::try_from(asked.rax).ok().and_then(find);
    let answer = match found {
        Some(_) if makes(asked.rax as u32) && heap::stays_low() => Err(Errno::NOMEM),
        Some(call) => call(thread, arguments),
        None => {
            note_missing(asked.rax);
            Err(Errno::NOSYS)
        }
    };
    match answer {
        Ok(0) => {}
        Ok(result) => thread.set_registers(|registers| registers.rax = result),
        Err(CUT) => thread.cut.set(Some(asked.rax)),
        Err(why) => thread.set_registers(|registers| registers.rax = why.word()),
    }
}

/// Whether a call takes memory of the kernel's for good: such calls are refused before it runs out.
#[allow(non_upper_case_globals)] // the numbers' names are Linux's
fn makes(number: u32) -> bool {
    matches!(
        number,
        __NR_accept
            | __NR_accept4
            | __NR_bind
            | __NR_clone
            | __NR_clone3
            | __NR_connect
            | __NR_creat
            | __NR_epoll_create
            | __NR_epoll_create1
            | __NR_epoll_ctl
            | __NR_eventfd
            | __NR_eventfd2
            | __NR_execve
            | __NR_fork
            | __NR_link
            | __NR_linkat
            | __NR_memfd_create
            | __NR_mkdir
            | __NR_mkdirat
            | __NR_mount
            | __NR_open
            | __NR_openat
            | __NR_pidfd_open
            | __NR_pipe
            | __NR_pipe2
            | __NR_rename
            | __NR_renameat
            | __NR_renameat2
            | __NR_sendmmsg
            | __NR_sendmsg
            | __NR_sendto
            | __NR_signalfd
            | __NR_signalfd4
            | __NR_socket
            | __NR_socketpair
            | __NR_shmget
            | __NR_symlink
            | __NR_symlinkat
            | __NR_timer_create
            | __NR_timerfd_create
            | __NR_userfaultfd
            | __NR_vfork
    )
}

/// Names a call that is not there, once (linux::N2). Numbers that Linux has not either are no
/// calls.
fn note_missing(number: u64) {
    if world().missing.lock().contains(&number) {
        return;
    }
    let Some(name) = listed::of(number) else { return };
    if world().missing.lock().insert(number) {
        say!("missing call {number} {name}");
    }
}

/// Says of each call whether it is there.
pub(super) fn list() {
    for (number, name) in listed::all() {
        let is = if find(number).is_some() { "there" } else { "missing" };
        say!("call {number} {name} {is}");
    }
}

/// What programs did to memory, as JSON.
pub(super) fn statistics() -> String {
    use foliant::Event;
    let total = |event| manager().total(event);
    let memory = manager().memory();
    let calls = CALLS.load(Ordering::Relaxed);
    let faults = total(Event::Fault);
    let tables = total(Event::TableMade);
    format!(
        "{{\"calls\":{calls},\"faults\":{faults},\"tables\":{tables},\"managed\":{},\"free\":{}}}",
        memory.managed.get(),
        memory.free.get()
    )
}

fn refused(why: Refused) -> Errno {
    Errno(why.errno())
}
