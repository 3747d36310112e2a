/*
 * Users and groups: who becomes whom, which files are refused, signals, segments, memory that is locked, and a copy of this program
 * with the set-user-ID bit. Runs as root. Prints what the system answers; two systems that print the same agree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

#define NOBODY 65534
#define OTHER 1234
#define PAGE 4096ul

static char folder[] = "/tmp/credentialsXXXXXX";

static void ids(const char *what, long answer)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;

	getresuid(&r, &e, &s);
	getresgid(&rg, &eg, &sg);
	printf("%s: %s, user %d %d %d files %d, group %d %d %d files %d\n", what, answer < 0 ? strerror(errno) : "done", r, e, s,
	       setfsuid(-1), rg, eg, sg, setfsgid(-1));
}

static void drop(int user)
{
	if (setgroups(0, NULL) || setgid(user) || setuid(user))
		_exit(9);
}

static void by_setuid(void)
{
	ids("setuid", setuid(NOBODY));
	ids("setuid back", setuid(0));
	ids("setuid to another", setuid(OTHER));
	ids("setgid is nobody's", setgid(NOBODY));
	ids("seteuid", seteuid(0));
	ids("setuid -1", setuid(-1));
}

static void by_seteuid(void)
{
	ids("setegid", setegid(NOBODY));
	ids("seteuid", seteuid(NOBODY));
	ids("setegid back", setegid(0));
	ids("setegid to another", setegid(OTHER));
	ids("seteuid back", seteuid(0));
	ids("seteuid", seteuid(NOBODY));
	ids("setuid keeps the saved one", setuid(NOBODY));
	ids("setuid to the real one", setuid(0));
	ids("setuid of root", setuid(NOBODY));
	ids("for good", setuid(0));
}

static void by_setreuid(void)
{
	ids("setregid", setregid(NOBODY, OTHER));
	ids("setreuid", setreuid(OTHER, NOBODY));
	ids("change places", setreuid(NOBODY, OTHER));
	ids("groups change places", setregid(OTHER, NOBODY));
	ids("effective to saved", setreuid(-1, NOBODY));
	ids("real to another", setreuid(0, -1));
	ids("effective to another", setreuid(-1, 0));
}

static void by_setresuid(void)
{
	ids("setresgid", setresgid(1, 2, 3));
	ids("setresuid", setresuid(1, 2, 3));
	ids("in a circle", setresuid(2, 3, 1));
	ids("groups in a circle", setresgid(2, 3, 1));
	ids("one is another", setresuid(2, 3, 4));
	ids("nothing", setresuid(-1, -1, -1));
	ids("setuid to the saved one", setuid(1));
	ids("setuid to the real one", setuid(2));
}

static void by_setfsuid(void)
{
	int file;

	say("setfsuid", setfsuid(NOBODY));
	say("setfsgid", setfsgid(NOBODY));
	ids("they are", 0);
	say("root's file", open("own", O_RDONLY));
	file = open("open/of-nobody", O_CREAT | O_WRONLY, 0600);
	say("a new file", file >= 0 ? 0 : -1);
	say("setfsuid to another", setfsuid(OTHER));
	say("setfsuid back", setfsuid(0));
	say("root's file", open("own", O_RDONLY) >= 0 ? 0 : -1);
	say("seteuid", seteuid(NOBODY));
	say("root's file", open("own", O_RDONLY));
	say("setfsuid to the real one", setfsuid(0));
	say("root's file", open("own", O_RDONLY) >= 0 ? 0 : -1);
}

static void with_groups(void)
{
	gid_t all[] = { 30, 10, 20, 10 }, got[8] = { 0 };

	say("setgroups", setgroups(4, all));
	say("how many", getgroups(0, got));
	say("too few", getgroups(3, got));
	say("getgroups", getgroups(8, got));
	printf("%d %d %d %d\n", got[0], got[1], got[2], got[3]);
	say("too many", setgroups(65537, all));
	if (setgid(OTHER) || setuid(OTHER))
		_exit(9);
	say("group 20 may read", open("of-20", O_RDONLY) >= 0 ? 0 : -1);
	say("and not write", open("of-20", O_WRONLY));
	say("group 40 may", open("of-40", O_RDONLY));
	say("setgroups", setgroups(1, all));
	say("too many", setgroups(65537, all));
}

static void *thread(void *all)
{
	char line[100];
	FILE *status = fopen("/proc/thread-self/status", "r");

	(void)all;
	if (!status)
		status = fopen("/proc/self/status", "r");
	ids("a thread", 0);
	while (status && fgets(line, sizeof line, status))
		if (!strncmp(line, "Uid", 3) || !strncmp(line, "Gid", 3) || !strncmp(line, "Groups", 6))
			printf("%s", line);
	return NULL;
}

static void *waits(void *all)
{
	pthread_barrier_t *barriers = all;

	pthread_barrier_wait(&barriers[0]);
	pthread_barrier_wait(&barriers[1]);
	ids("another one", 0);
	return NULL;
}

static void with_threads(void)
{
	pthread_barrier_t barriers[2];
	gid_t group = 77;
	pthread_t one;

	pthread_barrier_init(&barriers[0], NULL, 2);
	pthread_barrier_init(&barriers[1], NULL, 2);
	pthread_create(&one, NULL, waits, barriers);
	pthread_barrier_wait(&barriers[0]);
	setgroups(1, &group);
	ids("all at once", setresgid(5, 6, 7) | setresuid(1, 2, 3));
	pthread_barrier_wait(&barriers[1]);
	pthread_join(one, NULL);
	pthread_create(&one, NULL, thread, NULL);
	pthread_join(one, NULL);
	pthread_barrier_init(&barriers[0], NULL, 2);
	pthread_barrier_init(&barriers[1], NULL, 2);
	pthread_create(&one, NULL, waits, barriers);
	pthread_barrier_wait(&barriers[0]);
	ids("one alone", syscall(SYS_setresuid, 3, 3, 3));
	pthread_barrier_wait(&barriers[1]);
	pthread_join(one, NULL);
}

static void files(void)
{
	struct timespec now[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } }, then[2] = { { 1, 0 }, { 2, 0 } };
	struct timespec none[2] = { { 0, UTIME_OMIT }, { 0, UTIME_OMIT } };
	struct stat stat_of;

	drop(NOBODY);
	say("open to read", open("own", O_RDONLY));
	say("open as a path", open("own", O_PATH) >= 0 ? 0 : -1);
	say("read what all read", open("all-read", O_RDONLY) >= 0 ? 0 : -1);
	say("write it", open("all-read", O_WRONLY));
	say("both", open("all-read", O_RDWR));
	say("read and empty it", open("all-read", O_RDONLY | O_TRUNC));
	say("truncate", truncate("all-read", 0));
	say("without a time", open("all-read", O_RDONLY | O_NOATIME));
	say("make one here", open("new", O_CREAT | O_WRONLY, 0600));
	say("open what is here to make it", open("all-read", O_CREAT | O_RDONLY, 0600) >= 0 ? 0 : -1);
	say("make one that is here", open("all-read", O_CREAT | O_EXCL, 0600));
	say("one without a name", open(".", O_TMPFILE | O_RDWR, 0600));
	say("mkdir", mkdir("new", 0700));
	say("mkdir of what is here", mkdir("own", 0700));
	say("symlink", symlink("own", "new"));
	say("link", link("sticky/of-nobody", "new"));
	say("unlink", unlink("own"));
	say("unlink of a folder", unlink("open"));
	say("rmdir", rmdir("open"));
	say("rmdir of a file", rmdir("own"));
	say("rename", rename("own", "new"));
	say("rename out", rename("own", "open/new"));
	say("stat", stat("own", &stat_of));
	say("in a shut folder", stat("shut/file", &stat_of));
	say("through it", stat("shut/..", &stat_of));
	say("the folder itself", stat("shut/", &stat_of));
	say("chdir", chdir("shut"));
	say("chdir to what may be searched", chdir("search"));
	say("list it", open(".", O_RDONLY | O_DIRECTORY));
	say("a file in it", stat("file", &stat_of));
	say("chmod", chmod("file", 0777));
	say("chown", chown("file", NOBODY, NOBODY));
	say("chown to nothing", chown("file", -1, -1));
	say("times", utimensat(AT_FDCWD, "file", then, 0));
	say("now", utimensat(AT_FDCWD, "file", NULL, 0));
	say("now of what all write", utimensat(AT_FDCWD, "../all-write", now, 0));
	say("times of what all write", utimensat(AT_FDCWD, "../all-write", then, 0));
	say("no times", utimensat(AT_FDCWD, "file", none, 0));
	say("exec without a bit", execl("../all-read", "x", NULL));
	say("exec of others' bit", execl("../root-runs", "x", NULL));
	say("exec in a shut folder", execl("../shut/file", "x", NULL));
}

static void sticky(void)
{
	struct stat it;

	drop(NOBODY);
	chdir("sticky");
	say("a file of root's", unlink("of-root"));
	say("a folder of root's", rmdir("folder"));
	say("over it", rename("of-nobody", "of-root"));
	say("away", rename("of-root", "x"));
	say("its own", rename("of-nobody", "x"));
	say("gone", unlink("x"));
	say("a new one", open("new", O_CREAT | O_WRONLY, 06777) >= 0 ? 0 : -1);
	stat("new", &it);
	printf("%o %d %d\n", it.st_mode, it.st_uid, it.st_gid);
	say("in a folder that hands its group on", open("../team/new", O_CREAT | O_WRONLY, 02770) >= 0 ? 0 : -1);
	stat("../team/new", &it);
	printf("%o %d %d\n", it.st_mode, it.st_uid, it.st_gid);
	say("a folder there", mkdir("../team/folder", 0750));
	stat("../team/folder", &it);
	printf("%o %d %d\n", it.st_mode, it.st_uid, it.st_gid);
	mkdir("../open/a", 0755);
	chdir("../open");
	say("a folder of another one's moves", rename("of-root", "a/b"));
	say("and stays where it is", rename("of-root", "of-root-still"));
}

static void mode(const char *what, long answer, const char *path)
{
	struct stat it;

	stat(path, &it);
	printf("%s: %s, %o %d %d\n", what, answer < 0 ? strerror(errno) : "done", it.st_mode & 07777, it.st_uid, it.st_gid);
}

static void owners(void)
{
	gid_t group = 20;
	int file = open("mine", O_CREAT | O_WRONLY, 0755);

	fchmod(file, 06755);
	mode("set-ids", 0, "mine");
	mode("chown by root", fchown(file, NOBODY, OTHER), "mine");
	fchmod(file, 06745);
	mode("without the group's x", fchown(file, -1, OTHER), "mine");
	mkdir("folder", 0755);
	chmod("folder", 06755);
	mode("a folder", chown("folder", NOBODY, OTHER), "folder");
	if (setgroups(1, &group) || setgid(NOBODY) || setuid(NOBODY))
		_exit(9);
	mode("chmod of its own", chmod("mine", 0644), "mine");
	mode("of a group that it is not in", chmod("mine", 02755), "mine");
	mode("its own to a group of its", chown("mine", -1, 20), "mine");
	mode("of that group", chmod("mine", 06755), "mine");
	mode("written", write(open("mine", O_WRONLY), "x", 1), "mine");
	chmod("mine", 06755);
	mode("truncated", truncate("mine", 1), "mine");
	chmod("mine", 06745);
	mode("written, without the group's x", write(open("mine", O_WRONLY), "x", 1), "mine");
	chmod("mine", 06755);
	mode("to itself", chown("mine", NOBODY, -1), "mine");
	mode("to another group", chown("mine", -1, 21), "mine");
	mode("to another one", chown("mine", OTHER, -1), "mine");
	mode("chmod of another one's", chmod("own", 0777), "own");
}

static void accesses(void)
{
	setegid(NOBODY);
	seteuid(NOBODY);
	say("open", open("own", O_RDONLY));
	say("access", access("own", R_OK | W_OK));
	say("access to run", access("own", X_OK));
	say("access of the effective one", faccessat(AT_FDCWD, "own", R_OK, AT_EACCESS));
	say("in a shut folder", access("shut/file", F_OK));
	say("effective there", faccessat(AT_FDCWD, "shut/file", F_OK, AT_EACCESS));
	say("to run a folder", access("shut", X_OK));
	say("unknown flags", syscall(SYS_faccessat2, AT_FDCWD, "own", F_OK, 1));
	seteuid(0);
	setresuid(NOBODY, 0, 0);
	say("open", open("own", O_RDONLY) >= 0 ? 0 : -1);
	say("access", access("own", R_OK));
	say("access of the effective one", faccessat(AT_FDCWD, "own", R_OK, AT_EACCESS));
}

static int sleeper(int real, int effective, int saved)
{
	int ready[2], child;
	char byte;

	pipe(ready);
	child = fork();
	if (!child) {
		setresgid(real, effective, saved);
		setresuid(real, effective, saved);
		write(ready[1], "", 1);
		sleep(20);
		_exit(0);
	}
	read(ready[0], &byte, 1);
	close(ready[0]);
	close(ready[1]);
	return child;
}

static void signals(void)
{
	char here[8], there[8] = "there";
	struct iovec own = { here, 8 }, other = { there, 8 };
	int root = sleeper(0, 0, 0), saved = sleeper(OTHER, 0, NOBODY), effective = sleeper(OTHER, NOBODY, 0);
	int nobody = sleeper(NOBODY, NOBODY, NOBODY), far = sleeper(0, 0, 0), descriptor;
	struct rlimit limit;

	setpgid(far, 0);
	drop(NOBODY);
	say("kill of root", kill(root, 0));
	say("of root, to end it", kill(root, SIGKILL));
	say("no such signal", kill(root, 65));
	say("to go on, in the session", kill(root, SIGCONT));
	say("tgkill", syscall(SYS_tgkill, root, root, SIGTERM));
	say("by its saved number", kill(saved, 0));
	say("by its effective number", kill(effective, 0));
	say("its own user's", kill(nobody, 0));
	say("a group of others'", kill(-far, SIGTERM));
	say("nobody there", kill(-999999, SIGTERM));
	descriptor = syscall(SYS_pidfd_open, root, 0);
	say("pidfd_send_signal", syscall(SYS_pidfd_send_signal, descriptor, SIGTERM, NULL, 0));
	say("process_madvise", syscall(SYS_process_madvise, descriptor, &other, 1, MADV_COLD, 0));
	say("process_vm_readv", process_vm_readv(root, &own, 1, &other, 1, 0));
	say("of one that became nobody", process_vm_readv(nobody, &own, 1, &other, 1, 0));
	say("prlimit", prlimit(root, RLIMIT_NOFILE, NULL, &limit));
	say("of its own user's", prlimit(nobody, RLIMIT_NOFILE, NULL, &limit));
	say("setpriority", setpriority(PRIO_PROCESS, root, 5));
	say("of its own", setpriority(PRIO_PROCESS, 0, 5));
	say("less again", setpriority(PRIO_PROCESS, 0, 4));
	say("of its own user's", setpriority(PRIO_PROCESS, nobody, 5));
	say("sched_setscheduler", sched_setscheduler(root, SCHED_BATCH, &(struct sched_param){ 0 }));
	say("sched_setaffinity", sched_setaffinity(root, 8, &(cpu_set_t){ { 1 } }));
	say("all", kill(-1, 0));
	kill(nobody, SIGKILL);
	kill(saved, SIGKILL);
}

static void processes(void)
{
	struct stat it;
	char path[50];
	int root = sleeper(0, 0, 0), other = sleeper(OTHER, OTHER, OTHER);
	const char *names[] = { "maps", "environ", "mem", "status" };

	snprintf(path, sizeof path, "/proc/%d", other);
	stat(path, &it);
	printf("its folder: %d %d\n", it.st_uid, it.st_gid);
	snprintf(path, sizeof path, "/proc/%d/status", other);
	stat(path, &it);
	printf("a text of what became another one: %d %d\n", it.st_uid, it.st_gid);
	drop(NOBODY);
	for (int nth = 0; nth < 4; nth++) {
		snprintf(path, sizeof path, "/proc/%d/%s", root, names[nth]);
		say(names[nth], open(path, O_RDONLY) >= 0 ? 0 : -1);
		snprintf(path, sizeof path, "/proc/self/%s", names[nth]);
		say("its own", open(path, O_RDONLY) >= 0 ? 0 : -1);
	}
	say("may be looked at", prctl(PR_GET_DUMPABLE));
	say("its own descriptors", open("/proc/self/fd/1", O_PATH) >= 0 ? 0 : -1);
	say("a setting", open("/proc/sys/kernel/hostname", O_WRONLY));
	say("which may be read", open("/proc/sys/kernel/hostname", O_RDONLY) >= 0 ? 0 : -1);
}

static void machine(void)
{
	struct rlimit limit;
	int child;

	setrlimit(RLIMIT_NPROC, &(struct rlimit){ 0, 100 });
	child = fork();
	if (!child)
		_exit(0);
	say("fork by root", child > 0 ? 0 : -1);
	waitpid(child, NULL, 0);
	drop(OTHER);
	say("fork", fork());
	say("sethostname", sethostname("x", 1));
	say("setdomainname", setdomainname("x", 1));
	say("mount", mount("none", "open", "tmpfs", 0, NULL));
	say("umount", umount("open"));
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_max--;
	limit.rlim_cur = limit.rlim_max;
	say("a lower limit", setrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_max++;
	say("as high as before", setrlimit(RLIMIT_NOFILE, &limit));
	say("userfaultfd", syscall(SYS_userfaultfd, 0));
}

static void segments(void)
{
	struct shmid_ds it;
	int own = shmget(0x1234567, PAGE, IPC_CREAT | 0640), all = shmget(0x1234568, PAGE, IPC_CREAT | 0666), mine;
	char *at;

	shmctl(own, IPC_STAT, &it);
	printf("%d %d %d %d %o\n", it.shm_perm.uid, it.shm_perm.gid, it.shm_perm.cuid, it.shm_perm.cgid, it.shm_perm.mode);
	drop(NOBODY);
	say("shmget", shmget(0x1234567, PAGE, 0600));
	say("to do nothing", shmget(0x1234567, PAGE, 0) == own ? 0 : -1);
	say("larger", shmget(0x1234567, 2 * PAGE, 0600));
	say("a new one", shmget(0x1234567, PAGE, IPC_CREAT | IPC_EXCL | 0600));
	say("shmat", (long)shmat(own, NULL, 0));
	say("to read", (long)shmat(own, NULL, SHM_RDONLY));
	say("at no page", (long)shmat(own, (void *)1, 0));
	say("stat", shmctl(own, IPC_STAT, &it));
	say("set", shmctl(own, IPC_SET, &it));
	say("remove", shmctl(own, IPC_RMID, NULL));
	say("lock", shmctl(own, SHM_LOCK, NULL));
	at = shmat(all, NULL, 0);
	say("what all may", at != (void *)-1 ? 0 : -1);
	say("to run", (long)shmat(all, NULL, SHM_EXEC));
	say("stat", shmctl(all, IPC_STAT, &it));
	say("remove", shmctl(all, IPC_RMID, NULL));
	mine = shmget(IPC_PRIVATE, PAGE, 0600);
	shmctl(mine, IPC_STAT, &it);
	printf("%d %d %d %d %o\n", it.shm_perm.uid, it.shm_perm.gid, it.shm_perm.cuid, it.shm_perm.cgid, it.shm_perm.mode);
	it.shm_perm.uid = OTHER;
	it.shm_perm.gid = OTHER;
	it.shm_perm.mode = 0400;
	say("to another one", shmctl(mine, IPC_SET, &it));
	shmctl(mine, IPC_STAT, &it);
	printf("%d %d %d %d %o\n", it.shm_perm.uid, it.shm_perm.gid, it.shm_perm.cuid, it.shm_perm.cgid, it.shm_perm.mode);
	say("to write", (long)shmat(mine, NULL, 0));
	say("who made it removes it", shmctl(mine, IPC_RMID, NULL));
}

static void all_segments_go(void)
{
	say("removed", shmctl(shmget(0x1234567, 0, 0), IPC_RMID, NULL));
	say("removed", shmctl(shmget(0x1234568, 0, 0), IPC_RMID, NULL));
}

static void locks(void)
{
	struct rlimit four = { 4 * PAGE, 4 * PAGE }, none = { 0, 4 * PAGE };
	char *at = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	setrlimit(RLIMIT_MEMLOCK, &four);
	drop(NOBODY);
	say("mlock", mlock(at, 4 * PAGE));
	say("the same again", mlock(at, 4 * PAGE));
	say("one more", mlock(at + 4 * PAGE, PAGE));
	say("too many", mlock2(at, 8 * PAGE, 0));
	say("mlockall", mlockall(MCL_CURRENT));
	say("mmap", (long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0));
	say("munlock", munlock(at, 8 * PAGE));
	say("mmap", mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) == MAP_FAILED ? -1 : 0);
	setrlimit(RLIMIT_MEMLOCK, &none);
	say("without a limit left", mlock(at, PAGE));
	say("mlock2", mlock2(at, PAGE, MLOCK_ONFAULT));
	say("mlockall", mlockall(MCL_FUTURE));
	say("mmap", (long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0));
	say("munlockall", munlockall());
	say("more than it may be", setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ 0, 5 * PAGE }));
}

static void sockets(void)
{
	struct sockaddr_un name = { AF_UNIX, "listens" };
	struct ucred who;
	socklen_t size = sizeof who;
	int listens = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0), came;

	bind(listens, (void *)&name, sizeof name);
	listen(listens, 1);
	chmod("listens", 0700);
	setegid(NOBODY);
	seteuid(NOBODY);
	say("connect", connect(other, (void *)&name, sizeof name));
	strcpy(name.sun_path, "mine");
	say("bind", bind(other, (void *)&name, sizeof name));
	seteuid(0);
	chmod("listens", 0777);
	seteuid(NOBODY);
	strcpy(name.sun_path, "listens");
	say("connect where all may", connect(other, (void *)&name, sizeof name));
	came = accept(listens, NULL, NULL);
	getsockopt(came, SOL_SOCKET, SO_PEERCRED, &who, &size);
	printf("who came: %d %d\n", who.uid, who.gid);
	getsockopt(other, SOL_SOCKET, SO_PEERCRED, &who, &size);
	printf("who listens: %d %d\n", who.uid, who.gid);
	getsockopt(listens, SOL_SOCKET, SO_PEERCRED, &who, &size);
	printf("nobody: %d %d\n", who.uid == (uid_t)-1 || who.uid == 0, who.gid == (gid_t)-1 || who.gid == 0);
}

static void copy(const char *to, int mode_of)
{
	char bytes[PAGE];
	int from = open("/proc/self/exe", O_RDONLY), into = open(to, O_CREAT | O_WRONLY, 0700);
	long count;

	while ((count = read(from, bytes, sizeof bytes)) > 0)
		write(into, bytes, count);
	close(from);
	fchmod(into, mode_of);
	close(into);
}

static void run(const char *path)
{
	int child;

	fflush(stdout);
	child = fork();
	if (!child) {
		execl(path, path, "ids", NULL);
		say(path, -1);
		fflush(stdout);
		_exit(1);
	}
	waitpid(child, NULL, 0);
}

static void set_uid(void)
{
	if (setgroups(0, NULL) || setresgid(OTHER, OTHER, OTHER) || setresuid(OTHER, OTHER, OTHER))
		_exit(9);
	run("./plain");
	run("./set-uid");
	run("./set-gid");
	run("./both");
	run("./unread");
	run("./of-nobody");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	run("./both");
}

static void saved_goes(void)
{
	setresuid(OTHER, NOBODY, 0);
	setresgid(OTHER, NOBODY, 0);
	run("./plain");
}

static void back_to_itself(void)
{
	setresuid(OTHER, NOBODY, NOBODY);
	run("./of-other");
}

static void files_alone(void)
{
	setfsuid(OTHER);
	run("./plain");
}

static void file(const char *path, int mode_of, int user, int group)
{
	int made = open(path, O_CREAT | O_WRONLY, 0600);

	if (made < 0 || write(made, "text", 4) != 4 || fchown(made, user, group) || fchmod(made, mode_of))
		exit(3);
	close(made);
}

static void make(const char *path, int mode_of, int user, int group)
{
	if (mkdir(path, 0700) || chown(path, user, group) || chmod(path, mode_of))
		exit(3);
}

int main(int count, char **words)
{
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	if (count > 1) {
		printf("%s ", words[0]);
		ids("runs", 0);
		printf("vector: %lu %lu %lu %lu, secure %lu, may be looked at %d\n", getauxval(AT_UID), getauxval(AT_EUID),
		       getauxval(AT_GID), getauxval(AT_EGID), getauxval(AT_SECURE), prctl(PR_GET_DUMPABLE));
		return 0;
	}
	umask(0);
	if (geteuid() || !mkdtemp(folder) || chmod(folder, 0755) || chdir(folder))
		return 2;
	file("own", 0600, 0, 0);
	file("all-read", 0644, 0, 0);
	file("all-write", 0666, 0, 0);
	file("root-runs", 0744, 0, 0);
	file("of-20", 0640, 0, 20);
	file("of-40", 0640, 0, 40);
	make("open", 0777, 0, 0);
	make("open/of-root", 0755, 0, 0);
	make("shut", 0700, 0, 0);
	file("shut/file", 0755, 0, 0);
	make("search", 0711, 0, 0);
	file("search/file", 0644, 0, 0);
	make("sticky", 01777, 0, 0);
	make("sticky/folder", 0777, 0, 0);
	file("sticky/of-root", 0666, 0, 0);
	file("sticky/of-nobody", 0600, NOBODY, NOBODY);
	make("team", 02777, 0, 20);
	apart("setuid", by_setuid);
	apart("seteuid", by_seteuid);
	apart("setreuid", by_setreuid);
	apart("setresuid", by_setresuid);
	apart("setfsuid", by_setfsuid);
	apart("groups", with_groups);
	apart("threads", with_threads);
	apart("files", files);
	apart("a sticky folder", sticky);
	apart("owners", owners);
	apart("access", accesses);
	apart("signals", signals);
	apart("processes", processes);
	apart("the machine", machine);
	apart("segments", segments);
	apart("they go", all_segments_go);
	apart("locks", locks);
	apart("sockets", sockets);
	copy("plain", 0755);
	copy("set-uid", 04755);
	copy("set-gid", 02755);
	copy("both", 06755);
	copy("unread", 0711);
	copy("of-nobody", 0755);
	if (chown("of-nobody", NOBODY, NOBODY) || chmod("of-nobody", 04755))
		return 4;
	apart("set-ids", set_uid);
	copy("of-other", 0755);
	if (chown("of-other", OTHER, OTHER) || chmod("of-other", 04755))
		return 4;
	apart("what was saved", saved_goes);
	apart("back to itself", back_to_itself);
	apart("for files alone", files_alone);
	return 0;
}
