//! A sequence as a C program, which shows what Linux does.

use crate::call::{Arg, Base, Call, FILES, FIRST_FILE, MASK_BITS, Name};
use crate::run::Difference;
use std::fmt::Write;

const HEAD: &str = r#"#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static sigjmp_buf back;
static void on(int number, siginfo_t *info, void *context)
{
	printf("signal %d, code %d, address %p\n", number, info->si_code, info->si_addr);
	siglongjmp(back, 1);
}
static void maps(void)
{
	char line[256];
	FILE *file = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, file))
		printf("\t%s", line);
	fclose(file);
}
static void say(const char *what, long result)
{
	if (result == -1)
		printf("%s = -1 (%s)\n", what, strerror(errno));
	else
		printf("%s = %#lx\n", what, result);
}
static unsigned char bytes[8192];
static void say_bytes(long count)
{
	say("pread", count);
	for (long at = 0, run; at < count; at += run) {
		for (run = 1; at + run < count && bytes[at + run] == bytes[at]; run++)
			;
		printf("\t%ld of %#04x\n", run, bytes[at]);
	}
}
static void control(int id, int command, unsigned mode)
{
	struct shmid_ds ds = { .shm_perm.mode = mode };
	say("shmctl", syscall(SYS_shmctl, id, command, &ds));
	printf("\tkey %#x, mode %#o, %zu bytes, %lu attached\n", ds.shm_perm.__key,
	       ds.shm_perm.mode, ds.shm_segsz, ds.shm_nattch);
}
static void file(int descriptor, const char *name, unsigned flags, long bytes)
{
	int made = memfd_create(name, flags);
	dup2(made, descriptor);
	if (made != descriptor)
		close(made);
	ftruncate(descriptor, bytes);
}

static int faults;
#ifndef UFFDIO_POISON
#define _UFFDIO_POISON 8
struct uffdio_poison { struct uffdio_range range; __u64 mode; __s64 updated; };
#define UFFDIO_POISON _IOWR(UFFDIO, _UFFDIO_POISON, struct uffdio_poison)
#endif
#ifndef UFFDIO_MOVE
#define _UFFDIO_MOVE 5
struct uffdio_move { __u64 dst, src, len, mode; __s64 move; };
#define UFFDIO_MOVE _IOWR(UFFDIO, _UFFDIO_MOVE, struct uffdio_move)
#endif
static void userfault(int what, unsigned long start, unsigned long len, unsigned long mode, int byte, unsigned long from)
{
	static unsigned char source[8192] __attribute__((aligned(4096)));
	struct uffdio_range range = { start, len };
	struct uffdio_copy copy = { .dst = start, .src = (unsigned long)source, .len = len, .mode = mode };
	struct uffdio_zeropage zeropage = { .range = range, .mode = mode };
	struct uffdio_continue present = { .range = range, .mode = mode };
	struct uffdio_move move = { .dst = start, .src = from, .len = len, .mode = mode };
	struct uffdio_poison poison = { .range = range, .mode = mode };
	struct uffdio_register reg = { .range = range, .mode = mode };
	struct uffdio_writeprotect protect = { .range = range, .mode = mode };
	memset(source, byte, sizeof source);
	switch (what) {
	case _UFFDIO_REGISTER: say("register", ioctl(faults, UFFDIO_REGISTER, &reg)); break;
	case _UFFDIO_UNREGISTER: say("unregister", ioctl(faults, UFFDIO_UNREGISTER, &range)); break;
	case _UFFDIO_COPY:
		say("copy", ioctl(faults, UFFDIO_COPY, &copy));
		printf("\ttold %lld\n", copy.copy);
		break;
	case _UFFDIO_ZEROPAGE:
		say("zeropage", ioctl(faults, UFFDIO_ZEROPAGE, &zeropage));
		printf("\ttold %lld\n", zeropage.zeropage);
		break;
	case _UFFDIO_CONTINUE:
		say("continue", ioctl(faults, UFFDIO_CONTINUE, &present));
		printf("\ttold %lld\n", present.mapped);
		break;
	case _UFFDIO_MOVE:
		say("move", ioctl(faults, UFFDIO_MOVE, &move));
		printf("\ttold %lld\n", move.move);
		break;
	case _UFFDIO_POISON:
		say("poison", ioctl(faults, UFFDIO_POISON, &poison));
		printf("\ttold %lld\n", poison.updated);
		break;
	case _UFFDIO_WRITEPROTECT: say("writeprotect", ioctl(faults, UFFDIO_WRITEPROTECT, &protect)); break;
	default: say("wake", ioctl(faults, UFFDIO_WAKE, &range));
	}
}

int main(void)
{
	struct sigaction act = { .sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_NODEFER };
	char *arena = (char *)0x1000000000, *heap = sbrk(0);
	char *top = (char *)mmap(0, 4096, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096;
	munmap(top - 4096, 4096);
	printf("arena %p, heap %p, top %p\n", arena, heap, top);
	sigaction(SIGSEGV, &act, 0);
	sigaction(SIGBUS, &act, 0);
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (ioctl(faults, UFFDIO_API, &api))
		perror("userfaultfd");
	if (unshare(CLONE_NEWIPC))
		puts("segments are this machine's: remove them with ipcrm");
"#;

/// The text of a program that makes the calls, with both answers in its comment. Calls of a forked
/// child are made by it: each process goes on where the calls are its own.
pub fn program(calls: &[Call], difference: &Difference) -> String {
    let mut text = format!("/*\n * {}\n */\n", difference.to_string().replace('\n', "\n * "));
    text.push_str(HEAD);
    for (descriptor, (name, flags, bytes)) in (FIRST_FILE..).zip(FILES) {
        let _ = writeln!(text, "\tfile({descriptor}, \"{name}\", {flags}, {bytes});");
    }
    text.push_str("\tint me = 0, processes = 1;\n");
    for (nth, call) in calls.iter().enumerate() {
        let _ = write!(text, "\t/* {nth} */ if (me == {} % processes) {}", call.who, made(call));
    }
    text.push_str("\tmaps();\n\treturn 0;\n}\n");
    text
}

/// One call as a statement.
fn made(call: &Call) -> String {
    let args: Vec<String> = call.args[..call.name.arity()].iter().map(written).collect();
    match call.name {
        Name::Load => format!(
            "{{ if (!sigsetjmp(back, 1)) printf(\"%#x\\n\", *(volatile unsigned char *)({})); }}\n",
            args[0]
        ),
        Name::Store => format!(
            "{{ if (!sigsetjmp(back, 1)) *(volatile unsigned char *)({}) = {}; }}\n",
            args[0], args[1]
        ),
        Name::ClearRefs => format!(
            "say(\"clear_refs\", dprintf(open(\"/proc/self/clear_refs\", O_WRONLY), \"%lu\", {}));\n",
            args[0]
        ),
        // The parent waits for its turn, so that the output is in order.
        Name::Fork => "{ if (!fork()) me = processes; else wait(0); } processes++;\n".to_owned(),
        Name::Exit => "{ if (me) exit(0); }\n".to_owned(),
        Name::Mincore => format!(
            "{{ static unsigned char there[8192]; say(\"mincore\", syscall(SYS_mincore, {}, {}, there)); }}\n",
            args[0], args[1]
        ),
        Name::Userfault => format!(
            "{{ if (!me) userfault({}, (unsigned long)({}), {}, {}, {}, (unsigned long)({})); }}\n",
            args[0], args[1], args[2], args[3], args[4], args[5]
        ),
        Name::Mbind => format!(
            "{{ unsigned long mask = {}; say(\"mbind\", syscall(SYS_mbind, {}, {}, {}, &mask, {MASK_BITS}, {})); }}\n",
            args[3], args[0], args[1], args[2], args[4]
        ),
        Name::HomeNode => format!(
            "say(\"home node\", syscall(SYS_set_mempolicy_home_node, {}));\n",
            args.join(", ")
        ),
        Name::Shmctl => format!("control({});\n", args.join(", ")),
        Name::Pread => format!("say_bytes(pread({}, bytes, {}, {}));\n", args[0], args[2], args[3]),
        Name::Pwrite => format!(
            "{{ memset(bytes, {}, sizeof bytes); say(\"pwrite\", pwrite({}, bytes, {}, {})); }}\n",
            args[1], args[0], args[2], args[3]
        ),
        name => {
            format!(
                "say(\"{name}\", syscall(SYS_{name}{}));\n",
                args.iter().fold(String::new(), |all, arg| all + ", " + arg)
            )
        }
    }
}

fn written(arg: &Arg) -> String {
    match *arg {
        Arg::Word(word) => format!("{word:#x}ul"),
        Arg::Addr(Base::Zero, bytes) => format!("{bytes:#x}ul"),
        Arg::Addr(base, bytes) => {
            let name = match base {
                Base::Arena => "arena",
                Base::Top => "top",
                _ => "heap",
            };
            let sign = if bytes < 0 { '-' } else { '+' };
            format!("{name} {sign} {:#x}ul", bytes.unsigned_abs())
        }
    }
}
