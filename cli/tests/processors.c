/*
 * /proc/cpuinfo: whether it says what the processors say of themselves. Prints what agrees; it is all of it on any system.
 */
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[1 << 16], flags[8192];

/* The rest of the first line that begins so. */
static void line(const char *name, char *into, size_t size)
{
	char *at = strstr(text, name);

	*into = 0;
	if (!at || !(at = strchr(at, ':')))
		return;
	snprintf(into, size, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
}

static int has(const char *flag)
{
	char word[40];

	snprintf(word, sizeof word, " %s ", flag);
	return strstr(flags, word) != 0;
}

#define AGREES(flag, feature) printf(flag ": %s\n", has(flag) == !!__builtin_cpu_supports(feature) ? "agrees" : "does not")

int main(void)
{
	unsigned eax, vendor[4] = { 0 };
	char said[200];
	long count = 0;
	FILE *file = fopen("/proc/cpuinfo", "r");

	if (!file || fread(text, 1, sizeof text - 1, file) == 0)
		return 1;
	line("flags\t", flags, sizeof flags - 1);
	strcat(flags, " ");
	line("vendor_id", said, sizeof said);
	__cpuid(0, eax, vendor[0], vendor[2], vendor[1]);
	printf("vendor: %s\n", strcmp(said + 1, (char *)vendor) ? said : "agrees");
	line("cpuid level", said, sizeof said);
	printf("level: %s\n", strtoul(said, 0, 10) == eax ? "agrees" : said);
	for (char *at = text; (at = strstr(at, "processor\t:")); at++)
		count++;
	printf("processors: %s\n", count == sysconf(_SC_NPROCESSORS_ONLN) ? "agrees" : "do not");
	printf("always there: %d\n", has("lm") && has("nx") && has("syscall") && has("sse2") && has("fxsr") && has("pse"));
	__builtin_cpu_init();
	AGREES("pni", "sse3");
	AGREES("ssse3", "ssse3");
	AGREES("sse4_1", "sse4.1");
	AGREES("sse4_2", "sse4.2");
	AGREES("popcnt", "popcnt");
	AGREES("pclmulqdq", "pclmul");
	AGREES("aes", "aes");
	AGREES("avx", "avx");
	AGREES("avx2", "avx2");
	AGREES("fma", "fma");
	AGREES("bmi1", "bmi");
	AGREES("bmi2", "bmi2");
	AGREES("avx512f", "avx512f");
	return 0;
}
