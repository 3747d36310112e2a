/* Pseudo terminals, what they are set to, and who is in the foreground: prints what the calls
   answer, which is the same on every Linux. What differs from run to run (numbers of processes and
   of terminals) is compared here and printed as yes or no. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, long answer) {
    printf("%s: %ld%s%s\n", what, answer, answer < 0 ? " " : "", answer < 0 ? strerror(errno) : "");
    fflush(stdout);
}
static void show(const char *what, int fd) {
    char bytes[8192];
    long count = read(fd, bytes, sizeof bytes);
    printf("%s: %ld", what, count);
    if (count < 0) printf(" %s", strerror(errno));
    for (long nth = 0; nth < count; nth++)
        if (bytes[nth] >= ' ' && bytes[nth] < 127) printf(" %c", bytes[nth]);
        else printf(" %02x", (unsigned char)bytes[nth]);
    printf("\n");
    fflush(stdout);
}
static void pause_ms(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) < 0) {}
}
static void type_in(int master, const char *text) {
    say("typed", write(master, text, strlen(text)));
    pause_ms(30);
}
static int ready(int fd) {
    struct pollfd one = {fd, POLLIN | POLLOUT, 0};
    poll(&one, 1, 0);
    return one.revents;
}

static int master, slave;

static void names(void) {
    struct stat known;
    int locked = -1;
    unsigned number = 99999;
    char path[64];
    master = posix_openpt(O_RDWR | O_NOCTTY);
    say("number", ioctl(master, TIOCGPTN, &number) == 0 && number < 4096);
    say("lock", ioctl(master, TIOCGPTLCK, &locked));
    say("locked", locked);
    snprintf(path, sizeof path, "/dev/pts/%u", number);
    say("locked still", open(path, O_RDWR | O_NOCTTY));
    say("granted", grantpt(master));
    say("unlocked", unlockpt(master));
    say("named", strcmp(ptsname(master), path));
    slave = open(path, O_RDWR | O_NOCTTY);
    say("terminal", isatty(slave) && isatty(master));
    say("own name", strcmp(ttyname(slave), path));
    fstat(slave, &known);
    say("kind", S_ISCHR(known.st_mode));
    say("major", major(known.st_rdev));
    say("minor", minor(known.st_rdev) == number);
    fcntl(master, F_SETFL, O_NONBLOCK);
    fcntl(slave, F_SETFL, O_NONBLOCK);
}
static void settings(void) {
    struct termios set;
    struct winsize size = {0};
    int count = -1;
    tcgetattr(slave, &set);
    printf("flags: %x %x %x %x\n", set.c_iflag, set.c_oflag, set.c_cflag, set.c_lflag);
    for (int nth = 0; nth < 17; nth++) printf("%02x ", set.c_cc[nth]);
    printf("\nspeeds: %x %x\n", cfgetispeed(&set), cfgetospeed(&set));
    say("size", ioctl(slave, TIOCGWINSZ, &size));
    printf("%d x %d\n", size.ws_row, size.ws_col);
    size.ws_row = 30, size.ws_col = 100;
    say("resized", ioctl(master, TIOCSWINSZ, &size));
    memset(&size, 0, sizeof size);
    ioctl(slave, TIOCGWINSZ, &size);
    printf("%d x %d\n", size.ws_row, size.ws_col);
    type_in(master, "lx\177s\r");
    show("echo", master);
    ioctl(slave, FIONREAD, &count);
    say("waits", count);
    show("line", slave);
    show("no line", slave);
    type_in(master, "half");
    printf("ready: %x %x\n", ready(slave), ready(master));
    show("echo", master);
    set.c_lflag &= ~(ICANON | ECHO);
    set.c_cc[VMIN] = 3;
    say("raw", tcsetattr(slave, TCSANOW, &set));
    printf("ready: %x\n", ready(slave));
    show("half", slave);
    type_in(master, "ab");
    printf("not ready: %x\n", ready(slave));
    type_in(master, "c");
    printf("ready: %x\n", ready(slave));
    say("flushed", tcflush(slave, TCIFLUSH));
    show("flushed", slave);
    set.c_cc[VMIN] = 0, set.c_cc[VTIME] = 1;
    tcsetattr(slave, TCSADRAIN, &set);
    fcntl(slave, F_SETFL, 0);
    show("after a tenth", slave);
    type_in(master, "x");
    show("before", slave);
    set.c_cc[VTIME] = 0;
    type_in(master, "gone");
    tcsetattr(slave, TCSAFLUSH, &set);
    show("at once", slave);
    say("written", write(slave, "a\nb\tc", 5));
    show("shown", master);
    set.c_oflag = 0;
    tcsetattr(slave, TCSANOW, &set);
    say("written", write(slave, "a\nb", 3));
    show("as it is", master);
    say("drained", tcdrain(slave));
    say("sent", tcsendbreak(slave, 0));
    say("off", tcflow(slave, TCOOFF));
    fcntl(slave, F_SETFL, O_NONBLOCK);
    say("stopped", write(slave, "a", 1));
    say("on", tcflow(slave, TCOON));
    say("goes on", write(slave, "a", 1));
    say("no such flow", ioctl(slave, TCXONC, 9));
    say("no such flush", ioctl(slave, TCFLSH, 9));
    say("no such request", ioctl(slave, 0x54ff, 0));
    say("not mine", tcgetpgrp(slave));
    say("no session", tcgetsid(slave));
    show("shown", master);
}
static void epolls(void) {
    struct epoll_event event = {EPOLLIN, {0}};
    struct termios set;
    int all = epoll_create1(0);
    tcgetattr(slave, &set);
    set.c_lflag |= ICANON;
    tcsetattr(slave, TCSANOW, &set);
    epoll_ctl(all, EPOLL_CTL_ADD, slave, &event);
    say("none", epoll_wait(all, &event, 1, 0));
    type_in(master, "no line");
    say("none", epoll_wait(all, &event, 1, 0));
    type_in(master, "\n");
    say("a line", epoll_wait(all, &event, 1, 1000));
    show("line", slave);
    close(all);
}
static void ends(void) {
    close(slave);
    printf("left: %x\n", ready(master));
    show("left", master);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    printf("back: %x\n", ready(master));
    show("back", master);
    close(master);
    printf("hung up: %x\n", ready(slave));
    show("hung up", slave);
    say("written", write(slave, "a", 1));
    say("asked", ioctl(slave, TIOCOUTQ, &master));
    close(slave);
}

static volatile sig_atomic_t windows, hangups, continues;
static void note(int number) {
    if (number == SIGWINCH) windows++;
    if (number == SIGHUP) hangups++;
    if (number == SIGCONT) continues++;
}
/* A session of its own on a pseudo terminal; what it prints comes out of that. */
static void session(void) {
    struct winsize size = {10, 20, 0, 0};
    int status;
    pid_t child;
    signal(SIGWINCH, note);
    say("leads", getsid(0) == getpid() && tcgetpgrp(0) == getpid() && tcgetsid(0) == getpid());
    say("opened", open("/dev/tty", O_RDWR) >= 0);
    say("again", ioctl(0, TIOCSCTTY, 0));
    ioctl(0, TIOCSWINSZ, &size);
    ioctl(0, TIOCSWINSZ, &size);
    say("windows", windows);
    say("no group", tcsetpgrp(0, 999999));
    /* In the background: reads stop it, writes where that is asked for, settings as well. */
    child = fork();
    if (child == 0) {
        struct termios set;
        char byte;
        setpgid(0, 0);
        read(0, &byte, 1);
        tcgetattr(0, &set);
        set.c_lflag |= TOSTOP;
        tcsetattr(0, TCSANOW, &set);
        tcsetpgrp(0, getppid());
        write(1, "in front again\n", 15);
        signal(SIGTTOU, SIG_IGN);
        tcsetpgrp(0, getppid());
        signal(SIGTTIN, SIG_IGN);
        say("ignored", read(0, &byte, 1));
        exit(7);
    }
    setpgid(child, child);
    say("stopped", waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    say("by a read", WSTOPSIG(status) == SIGTTIN);
    say("told once", waitpid(child, &status, WUNTRACED | WNOHANG));
    say("in front", tcsetpgrp(0, child));
    signal(SIGTTOU, SIG_IGN);
    kill(-child, SIGCONT);
    say("continued", waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
    say("type", 1);
    waitpid(child, &status, WUNTRACED);
    say("by a write", WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU);
    tcsetpgrp(0, child);
    kill(-child, SIGCONT);
    waitpid(child, &status, 0);
    tcsetpgrp(0, getpgrp());
    signal(SIGTTOU, SIG_DFL);
    say("ended", WIFEXITED(status) && WEXITSTATUS(status) == 7);
    /* A key signals who is in front. */
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        for (;;) pause();
    }
    setpgid(child, child);
    signal(SIGTTOU, SIG_IGN);
    tcsetpgrp(0, child);
    say("keys", 1);
    waitpid(child, &status, WUNTRACED);
    printf("stopped %d\n", WIFSTOPPED(status) ? WSTOPSIG(status) : 0), fflush(stdout);
    kill(-child, SIGCONT);
    say("more keys", 1);
    waitpid(child, &status, 0);
    printf("killed %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0), fflush(stdout);
    tcsetpgrp(0, getpgrp());
    exit(3);
}
static void expect(int fd, const char *text) {
    static char all[16384];
    static size_t length;
    for (;;) {
        char *found = strstr(all, text);
        if (found) {
            memmove(all, found + strlen(text), strlen(found + strlen(text)) + 1);
            length = strlen(all);
            return;
        }
        long count = read(fd, all + length, sizeof all - 1 - length);
        if (count <= 0) return;
        for (long nth = 0; nth < count; nth++)
            if (all[length + nth] != '\r') putchar(all[length + nth]);
        fflush(stdout);
        length += count;
        all[length] = 0;
    }
}
static void job(void) {
    int status, fd;
    pid_t child = forkpty(&fd, NULL, NULL, NULL);
    if (child == 0) session();
    expect(fd, "type: 1");
    write(fd, "k\n", 2);
    expect(fd, "keys: 1");
    write(fd, "\032", 1);
    expect(fd, "more keys: 1");
    write(fd, "\003", 1);
    expect(fd, "nothing that comes");
    waitpid(child, &status, 0);
    say("session", WEXITSTATUS(status));
    close(fd);
}
/* The other end goes: the leader hears of it. */
static void hangup(void) {
    int status, fd, ready[2];
    char byte;
    pipe(ready);
    pid_t child = forkpty(&fd, NULL, NULL, NULL);
    if (child == 0) {
        signal(SIGHUP, note);
        signal(SIGCONT, note);
        write(ready[1], "r", 1);
        while (hangups == 0 || continues == 0) pause_ms(5);
        int ends = read(0, &byte, 1) == 0;
        int fails = write(1, "a", 1) < 0 && errno == EIO;
        int lost = open("/dev/tty", O_RDWR) < 0 && errno == ENXIO;
        _exit(ends + 2 * fails + 4 * lost);
    }
    read(ready[0], &byte, 1);
    close(fd);
    waitpid(child, &status, 0);
    say("hung up", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}
static int news(siginfo_t *info, pid_t id, int flags) {
    memset(info, 0, sizeof *info);
    return waitid(P_PID, id, info, flags);
}
static void stops(void) {
    siginfo_t info;
    int status, ends[2];
    pipe(ends);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        pause_ms(100);
        read(ends[0], &byte, 1); /* it is not to end before it is told that it went on */
        _exit(5);
    }
    say("nothing wanted", news(&info, child, WNOHANG));
    kill(child, SIGSTOP);
    say("stopped", news(&info, child, WSTOPPED | WNOWAIT));
    printf("%d %d %d\n", info.si_signo, info.si_code, info.si_status);
    say("still told", news(&info, child, WSTOPPED));
    say("no more", news(&info, child, WSTOPPED | WNOHANG) == 0 && info.si_pid == 0);
    pause_ms(200);
    say("not ended", waitpid(child, &status, WNOHANG));
    kill(child, SIGCONT);
    say("continued", news(&info, child, WCONTINUED));
    printf("%d %d\n", info.si_code, info.si_status);
    write(ends[1], "e", 1);
    say("its sleep is over", waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    child = fork();
    if (child == 0)
        for (;;) pause();
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    say("killed while stopped", WTERMSIG(status));
    say("no such flag", waitpid(-1, &status, 0x100));
    /* Groups and sessions. */
    say("of nobody", setpgid(999999, 0));
    say("negative", setpgid(0, -1));
    say("no such group", setpgid(0, 999999));
    child = fork();
    if (child == 0) {
        say("leads", setsid() == getpid());
        say("twice", setsid());
        say("moves", setpgid(0, 0));
        say("no terminal", open("/dev/tty", O_RDWR));
        _exit(0);
    }
    waitpid(child, &status, 0);
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int signal_number = SIGHUP; signal_number <= SIGQUIT; signal_number++)
        signal(signal_number, SIG_DFL); // whoever started this may not have wanted them
    names();
    settings();
    epolls();
    ends();
    stops();
    hangup();
    job();
    return 0;
}
