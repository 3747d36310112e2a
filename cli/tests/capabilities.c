/*
 * Capabilities: what calls, changes of the user and programs make of them, and what is refused without. Runs as root. Prints what the
 * system answers; two systems that print the same agree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

#define NOBODY 65534
#define ALL ((1ull << 41) - 1)
#define OF(one) (1ull << (one))

static const char *self;

static long capset_(int version, int of, unsigned long long effective, unsigned long long permitted, unsigned long long inheritable)
{
	struct __user_cap_header_struct head = { version, of };
	struct __user_cap_data_struct sets[2] = {
		{ effective, permitted, inheritable }, { effective >> 32, permitted >> 32, inheritable >> 32 }
	};

	return syscall(SYS_capset, &head, sets);
}

static long set(unsigned long long effective, unsigned long long permitted, unsigned long long inheritable)
{
	return capset_(_LINUX_CAPABILITY_VERSION_3, 0, effective, permitted, inheritable);
}

/* What /proc says, and that capget says the same. */
static void sets(const char *what)
{
	char line[200];
	FILE *file = fopen("/proc/self/status", "r");
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct got[2];

	printf("%s:", what);
	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, "Cap", 3))
			printf(" %.3s %lx", line + 3, strtoul(line + 8, NULL, 16));
	if (file)
		fclose(file);
	if (syscall(SYS_capget, &head, got))
		printf(" %s\n", strerror(errno));
	else
		printf(", told %x%08x %x%08x %x%08x\n", got[1].effective, got[0].effective, got[1].permitted, got[0].permitted,
		       got[1].inheritable, got[0].inheritable);
}

static void run(const char *what)
{
	int child;

	fflush(stdout);
	child = fork();
	if (!child) {
		execl(self, self, what, NULL);
		say("execl", -1);
		_exit(1);
	}
	waitpid(child, NULL, 0);
}

static void by_capset(void)
{
	unsigned long long some = OF(CAP_IPC_LOCK) | OF(CAP_KILL);

	say("of another", capset_(_LINUX_CAPABILITY_VERSION_3, 1, ALL, ALL, 0));
	say("no version", capset_(7, 0, ALL, ALL, 0));
	say("more than there are", set(~0ull, ~0ull, 0));
	sets("after that");
	say("inheritable", set(ALL, ALL, some));
	say("effective and not permitted", set(ALL, some, 0));
	say("some", set(OF(CAP_KILL), some, some));
	sets("some");
	say("back", set(ALL, ALL, some));
	say("effective again", set(some, some, some));
	say("inheritable, more", set(some, some, some | OF(CAP_CHOWN)));
	say("inheritable, fewer", set(some, some, 0));
	say("inheritable, what is permitted", set(some, some, OF(CAP_KILL)));
	say("one word", capset_(_LINUX_CAPABILITY_VERSION_1, 0, some, some, 0));
	sets("some");
	run("a program of root");
	say("none", set(0, 0, 0));
	sets("none");
	say("setuid", setuid(NOBODY));
	say("setgroups", setgroups(0, NULL));
	say("setgid", setgid(NOBODY));
	run("a program of root without");
}

static void by_user(void)
{
	say("seteuid", seteuid(NOBODY));
	sets("seteuid");
	say("back", seteuid(0));
	sets("back");
	setfsuid(NOBODY);
	sets("setfsuid");
	setfsuid(0);
	sets("back");
	say("setresuid", setresuid(NOBODY, NOBODY, 0));
	sets("saved");
	run("saved");
	say("keep", prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
	say("kept", prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
	say("keep 2", prctl(PR_SET_KEEPCAPS, 2, 0, 0, 0));
	say("setresuid", setresuid(NOBODY, NOBODY, NOBODY));
	sets("kept");
	say("effective again", set(OF(CAP_SETUID), OF(CAP_SETUID), 0));
	say("setuid", setuid(0));
	sets("root again");
	say("seteuid", seteuid(NOBODY));
	run("real");
}

static void for_good(void)
{
	say("setuid", setuid(NOBODY));
	sets("setuid");
	say("capset", set(1, 1, 0));
	say("capset of none", set(0, 0, 0));
	run("nobody's");
}

static void by_bits(void)
{
	say("bits", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
	say("one that is none", prctl(PR_SET_SECUREBITS, 1 << 8, 0, 0, 0));
	say("no fixup", prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0));
	say("setresuid", setresuid(NOBODY, NOBODY, 0));
	sets("as before");
	say("back", setresuid(0, 0, 0));
	say("no root", prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_KEEP_CAPS_LOCKED, 0, 0, 0));
	say("bits", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
	say("keep", prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
	say("unlock", prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_KEEP_CAPS_LOCKED, 0, 0, 0));
	say("root", prctl(PR_SET_SECUREBITS, SECBIT_NOROOT_LOCKED | SECBIT_KEEP_CAPS_LOCKED, 0, 0, 0));
	run("without root");
}

static void by_ambience(void)
{
	unsigned long long lock = OF(CAP_IPC_LOCK);

	say("raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_IPC_LOCK, 0, 0));
	say("inherit", set(ALL, ALL, lock | OF(CAP_KILL)));
	say("raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_IPC_LOCK, 0, 0));
	say("raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0));
	say("raise none", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 41, 0, 0));
	say("fourth", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 1, 0));
	say("no such", prctl(PR_CAP_AMBIENT, 9, CAP_KILL, 0, 0));
	say("is set", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_KILL, 0, 0));
	say("is set", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0));
	say("lower", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, CAP_KILL, 0, 0));
	sets("ambient");
	say("keep", prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0));
	say("setresuid", setresuid(NOBODY, NOBODY, NOBODY));
	run("with one");
	say("clear, with more", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 1, 0, 0));
	say("clear", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
	run("with none");
	say("no more", prctl(PR_SET_SECUREBITS, SECBIT_NO_CAP_AMBIENT_RAISE, 0, 0, 0));
	say("raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_IPC_LOCK, 0, 0));
}

static void by_bounds(void)
{
	say("read", prctl(PR_CAPBSET_READ, CAP_SYS_BOOT, 0, 0, 0));
	say("read none", prctl(PR_CAPBSET_READ, 41, 0, 0, 0));
	say("drop none", prctl(PR_CAPBSET_DROP, 64, 0, 0, 0));
	say("drop", prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT, 0, 0, 0));
	say("read", prctl(PR_CAPBSET_READ, CAP_SYS_BOOT, 0, 0, 0));
	sets("dropped");
	say("inherit what is not in bounds", set(ALL, ALL, OF(CAP_SYS_BOOT)));
	run("in bounds");
	say("without the right", set(0, ALL, 0));
	say("drop", prctl(PR_CAPBSET_DROP, CAP_KILL, 0, 0, 0));
	say("drop none", prctl(PR_CAPBSET_DROP, 64, 0, 0, 0));
}

/* Each with all but one. */
static void without(int one)
{
	if (set(ALL & ~OF(one), ALL, 0))
		_exit(9);
}

static void lock_memory(void)
{
	struct rlimit small = { 8192, 8192 }, more = { 65536, 65536 };
	char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	setrlimit(RLIMIT_MEMLOCK, &small);
	say("mlock with", mlock(at, 65536));
	munlock(at, 65536);
	without(CAP_IPC_LOCK);
	say("mlock without", mlock(at, 65536));
	say("a little", mlock(at, 4096));
	say("mlockall", mlockall(MCL_CURRENT));
	without(CAP_SYS_RESOURCE);
	say("a limit raised", setrlimit(RLIMIT_MEMLOCK, &more));
}

static void of_files(void)
{
	char path[] = "/tmp/ofXXXXXX";
	int file = mkstemp(path);

	if (fchmod(file, 0) || fchown(file, NOBODY, NOBODY))
		_exit(9);
	without(CAP_DAC_OVERRIDE);
	say("to read", open(path, O_RDONLY) >= 0 ? 0 : -1);
	say("to write", open(path, O_WRONLY) >= 0 ? 0 : -1);
	say("access", access(path, R_OK));
	set(ALL & ~(OF(CAP_DAC_OVERRIDE) | OF(CAP_DAC_READ_SEARCH)), ALL, 0);
	say("to read", open(path, O_RDONLY) >= 0 ? 0 : -1);
	say("access, which asks by what is permitted", access(path, R_OK | W_OK));
	without(CAP_FOWNER);
	say("chmod", fchmod(file, 0600));
	without(CAP_CHOWN);
	say("chown", fchown(file, 0, 0));
	without(CAP_FSETID);
	say("bits", fchmod(file, 06755));
	unlink(path);
}

static void of_others(void)
{
	struct sockaddr_in low = { .sin_family = AF_INET, .sin_port = htons(7), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int to[2], segment, other;
	char byte;

	if (pipe(to))
		return;
	segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	other = fork();
	if (!other) {
		if (setuid(NOBODY))
			_exit(9);
		read(to[0], &byte, 1);
		_exit(0);
	}
	usleep(100000);
	without(CAP_KILL);
	say("kill", kill(other, 0));
	without(CAP_SYS_NICE);
	say("priority", setpriority(PRIO_PROCESS, 0, -5));
	without(CAP_NET_BIND_SERVICE);
	say("a low port", bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&low, sizeof low));
	without(CAP_SYS_ADMIN);
	say("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
	say("sethostname", sethostname("it", 2));
	say("names of its own", syscall(SYS_clone, CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0));
	without(CAP_SETUID);
	say("setuid", setuid(7));
	without(CAP_SETGID);
	say("setgid", setgid(7));
	say("setgroups", setgroups(0, NULL));
	without(CAP_SYS_BOOT);
	say("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL));
	set(ALL & ~OF(CAP_IPC_OWNER), ALL, 0);
	say("a segment of one's own", shmctl(segment, IPC_RMID, NULL));
	set(ALL, ALL, 0);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}

static void kept_low(void)
{
	if (setuid(NOBODY) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		_exit(9);
	run("without new ones");
}

int main(int count, char **words)
{
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	if (count > 1) {
		sets(words[1]);
		printf("bits %d, may be looked at %d\n", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0), prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
		return 0;
	}
	self = words[0];
	sets("at first");
	apart("capset", by_capset);
	apart("by the user", by_user);
	apart("for good", for_good);
	apart("bits", by_bits);
	apart("ambient", by_ambience);
	apart("bounds", by_bounds);
	apart("no new ones", kept_low);
	apart("memory that is locked", lock_memory);
	apart("files", of_files);
	apart("others", of_others);
	return 0;
}
