/*
 * Programs that make random calls with random and with plausible arguments, each a child of this one, a third of them with two threads. One that
 * does not end by itself is killed. Usage: random_calls FIRST COUNT; nothing that they do may end the kernel, and all they had comes back.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLS 200 /* of each thread */
#define LOOKS 50 /* 2 ms each, before a child is killed */

static unsigned long long state;
static char room[1 << 16] __attribute__((aligned(4096)));

static unsigned long draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static unsigned long argument(void)
{
	unsigned long any = draw();

	switch (draw() % 16) {
	case 0: return 0;
	case 1: return any % 16;
	case 2: return any % 8192;
	case 3: return -1ul;
	case 4: return (unsigned long)room + any % sizeof(room);
	case 5: return (unsigned long)room + any % 16 * 4096;
	case 6: return 1ul << any % 64;
	case 7: return 0x7ffffffff000ul - any % 8192; /* where user addresses end */
	case 8: return 0xffff800000000000ul + any % 4096; /* where the kernel's begin */
	case 9: return any % 1024 * 4096;
	case 10: return (unsigned long)"/proc/self/maps";
	case 11: return (unsigned long)"/tmp/some";
	case 12: return 3;
	case 13: return (unsigned)any;
	case 14: return 0x10000000000ul + any % 64 * 4096;
	default: return any;
	}
}

/* Those that are most of a kernel: memory, files, processes, signals, sockets, timers. */
static const int usual[] = {
	SYS_mmap, SYS_mprotect, SYS_munmap, SYS_brk, SYS_mremap, SYS_madvise, SYS_msync, SYS_mincore, SYS_mlock, SYS_munlock, SYS_mlockall,
	SYS_munlockall, SYS_mlock2, SYS_memfd_create, SYS_ftruncate, SYS_fallocate, SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64,
	SYS_pwrite64, SYS_lseek, SYS_fcntl, SYS_dup, SYS_dup2, SYS_pipe, SYS_poll, SYS_ppoll, SYS_openat, SYS_getdents64, SYS_getcwd, SYS_chdir,
	SYS_mkdir, SYS_rmdir, SYS_rename, SYS_link, SYS_symlink, SYS_readlink, SYS_unlink, SYS_newfstatat, SYS_statx, SYS_clone, SYS_fork,
	SYS_vfork, SYS_execve, SYS_wait4, SYS_waitid, SYS_futex, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigsuspend,
	SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_sched_setaffinity, SYS_set_robust_list, SYS_set_tid_address, SYS_arch_prctl, SYS_select,
	SYS_pselect6, SYS_eventfd2, SYS_signalfd4, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_wait, SYS_epoll_pwait, SYS_timerfd_create, SYS_timerfd_settime,
	SYS_timerfd_gettime, SYS_alarm, SYS_setitimer, SYS_getitimer, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime,
	SYS_timer_getoverrun, SYS_timer_delete, SYS_socket, SYS_socketpair, SYS_bind, SYS_listen, SYS_accept4, SYS_connect, SYS_shutdown,
	SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg,
	SYS_recvmmsg, SYS_sendfile, SYS_copy_file_range,
	SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_userfaultfd, SYS_ioctl, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise,
	SYS_pidfd_open, SYS_pidfd_send_signal, SYS_remap_file_pages, SYS_mount, SYS_umount2, SYS_statfs, SYS_prlimit64, SYS_getrusage, SYS_times,
	SYS_flock, SYS_vmsplice, SYS_membarrier, SYS_sched_setscheduler, SYS_sched_setattr, SYS_getpriority, SYS_setpriority, SYS_personality,
	SYS_capget, SYS_capset, SYS_sethostname, SYS_clock_gettime, SYS_set_mempolicy, SYS_get_mempolicy, SYS_mbind, SYS_migrate_pages,
	SYS_move_pages, SYS_set_mempolicy_home_node,
};

static long number(void)
{
	if (draw() % 2)
		return usual[draw() % (sizeof(usual) / sizeof(*usual))];
	return draw() % 8 ? draw() % 335 : 424 + draw() % 42;
}

static void *make_calls(void *unused)
{
	for (int nth = 0; nth < CALLS; nth++) {
		long call = number();
		int ends = call == SYS_exit || call == SYS_exit_group;
		int makes = call == SYS_fork || call == SYS_vfork || call == SYS_clone || call == SYS_clone3;
		int kills = call == SYS_kill || call == SYS_tkill || call == SYS_tgkill || call == SYS_rt_sigqueueinfo;

		/* All are root, and the first process is everybody's. Few make others: those are as wild. */
		if (!ends && !kills && !(makes && draw() % 16))
			syscall(call, argument(), argument(), argument(), argument(), argument(), argument());
	}
	return unused;
}

int main(int count, char **words)
{
	long first = count > 1 ? atol(words[1]) : 0, all = count > 2 ? atol(words[2]) : 100, killed = 0;
	struct timespec look = { 0, 2000000 };

	for (long nth = first; nth < first + all; nth++) {
		int status, ended = 0, child = fork();

		if (!child) {
			pthread_t other;

			setpgid(0, 0);
			close(0);
			state = nth * 2654435761ull + 88172645463325252ull;
			for (int mix = 0; mix < 10; mix++)
				draw();
			if (nth % 3 == 0)
				pthread_create(&other, 0, make_calls, 0);
			make_calls(0);
			_exit(0);
		}
		for (int looks = 0; looks < LOOKS && !ended; looks++) {
			ended = waitpid(child, &status, WNOHANG);
			if (!ended)
				nanosleep(&look, 0);
		}
		if (!ended) {
			kill(-child, SIGKILL);
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			killed++;
		}
		while (waitpid(-1, &status, WNOHANG) > 0)
			;
	}
	printf("%ld programs, %ld of them killed\n", all, killed);
	return 0;
}
