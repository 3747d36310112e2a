# From the loader to Rust: 32 bits without paging, then long mode on the first tables, then high addresses.
#
#   PVH entry (ebx = start info) ─▶ check ─▶ enter_long ─▶ first_long ─▶ kernel_main(start info)
#   SIPI at 0x8000 (16 bits)     ─▶ enter_long ─▶ next_high ─▶ answers, and halts; or, where it is its turn:
#                                                            ─▶ cpu_main(number), on its own tables and stack
#
# What is missing is said here, on the serial line, with an exit code: later it would be a reset without a word.

.section .note.pvh, "a", @note
.balign 4
.long 4, 8, 18                      # name size, value size, type: the 32-bit physical entry
.asciz "Xen"
.quad start_pvh

.section .low.text, "ax", @progbits
.code32
.globl start_pvh
start_pvh:
    cli
    cld
    movl $first_stack_top, %esp
    movl %ebx, %ebp                 # survives enter_long
    lgdtl first_gdt_pointer
    call check_cpu
    call check_memory
    call enter_long
    ljmpl $0x08, $first_long

# Whether this CPU has what the kernel, and the code that the compiler makes, takes for granted. Uses all but ebp.
check_cpu:
    pushfl
    popl %eax
    movl %eax, %ecx
    xorl $0x200000, %eax            # a CPU with CPUID lets this flag change
    pushl %eax
    popfl
    pushfl
    popl %eax
    xorl %ecx, %eax
    movl $lacks_cpuid, %esi
    testl $0x200000, %eax
    jz lacking
    movl $0x80000000, %eax
    cpuid
    movl $lacks_long, %esi
    cmpl $0x80000001, %eax
    jb lacking
    movl $needs, %edi
1:  movl (%edi), %eax               # the leaf, 0 behind the last
    testl %eax, %eax
    jz 2f
    cpuid
    movl 4(%edi), %eax
    movl 8(%edi), %esi
    addl $12, %edi
    btl %eax, %edx
    jc 1b
lacking:
    pushl %esi
    movl $lacks, %esi
    call print
    popl %esi
    call print
    movl $line_end, %esi
    jmp unfit
2:  ret

# Whether memory reaches the image's end, and nothing was put over it. ebp is the start info. Uses eax, ecx, edi.
check_memory:
    movl $image_end_low - 4, %edi
    movl (%edi), %ecx
    movl $0x5a17e5ed, (%edi)
    cmpl $0x5a17e5ed, (%edi)
    movl %ecx, (%edi)
    jne 3f
    cmpl $0x336ec578, (%ebp)        # no start info: kernel_main says so
    jne 2f
    cmpl $0, 12(%ebp)               # no module
    je 2f
    cmpl $0, 20(%ebp)               # its list, or the module, above 4 GiB
    jne 2f
    movl 16(%ebp), %edi
    cmpl $0, 4(%edi)
    jne 2f
    movl (%edi), %eax
    cmpl $image_end_low, %eax
    jae 2f
    addl 8(%edi), %eax
    jc 3f
    cmpl $image_start_low, %eax
    ja 3f
2:  ret
3:  movl $lacks_memory, %esi
    jmp unfit

# Says the text at esi, and ends with the exit code of `exit::Code::Unfit`.
unfit:
    call print
    movw $0xf4, %dx
    movl $0x13, %eax
    outl %eax, %dx
    movb $0xfe, %al                 # nobody listens there: a reset, by the keyboard controller
    outb %al, $0x64
1:  hlt
    jmp 1b

# Prints the text at esi to the serial line. Uses eax, ecx, edx, esi.
print:
    lodsb
    testb %al, %al
    jz 3f
    movb %al, %ah
    movw $0x3fd, %dx
    movl $0x100000, %ecx
1:  inb %dx, %al                    # until there is room, or no such line
    testb $0x20, %al
    loopz 1b
    movb %ah, %al
    movw $0x3f8, %dx
    outb %al, %dx
    jmp print
3:  ret

# Switches paging and long mode on. All three registers are written whole: nothing of what a loader set stays, and every CPU gets the
# same (cpu::Controls adds what not every CPU has). Uses eax, ecx, edx.
enter_long:
    movl $0x6a0, %eax               # PAE, PGE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $first_top, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx          # EFER
    xorl %edx, %edx
    movl $0x900, %eax               # LME, NXE
    wrmsr
    movl $0x80010033, %eax          # PG, WP, NE, ET, MP, PE
    movl %eax, %cr0
    ret

.code64
first_long:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %eax, %fs
    movl %eax, %gs
    movl $first_stack_top, %esp
    movabsq ${direct}, %rax         # the stack through the direct map: the low half goes away
    addq %rax, %rsp
    movl %ebp, %edi
    xorl %ebp, %ebp
    movq $kernel_main, %rax
    call *%rax
1:  hlt
    jmp 1b

.balign 16
first_gdt:
    .quad 0
    .quad 0x00af9b000000ffff        # 0x08: code, 64 bits
    .quad 0x00cf93000000ffff        # 0x10: data
    .quad 0x00cf9b000000ffff        # 0x18: code, 32 bits
first_gdt_pointer:
    .word 31
    .long first_gdt

# Copied to 0x8000, where a CPU that is started begins in 16 bits.
.globl trampoline, trampoline_end
.code16
trampoline:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl (trampoline_gdt_pointer - trampoline + 0x8000)
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x18, $(trampoline_32 - trampoline + 0x8000)
.balign 4
trampoline_gdt_pointer:
    .word 31
    .long first_gdt
.code32
trampoline_32:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $next_stack_top, %esp
    movl $enter_long, %eax
    call *%eax
    ljmpl $0x08, $next_long
trampoline_end:

.code64
next_long:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %eax, %fs
    movl %eax, %gs
    movq $next_high, %rax
    jmp *%rax

# One CPU starts at a time, so what it starts with has one place.
.section .low.data, "aw", @progbits
.balign 4096
.globl first_top
first_top:                          # all that the direct map can reach (layout::DIRECT_MAX), there and at 0; the image high
    .quad first_low + 3
    .fill {direct_slot} - 1, 8, 0
    .quad first_low + 3
    .fill 510 - {direct_slot}, 8, 0
    .quad first_image + 3
.globl first_low
first_low:
    .set giga, 0
    .rept 512
    .quad giga + 0x83
    .set giga, giga + 0x40000000
    .endr
first_image:
    .fill 510, 8, 0
    .quad 0x83, 0x40000083

# What must be there: leaf of CPUID, bit of EDX, name.
needs:
    .long 0x80000001, 29, lacks_long
    .long 0x80000001, 20, lacks_nx
    .long 0x80000001, 26, lacks_giga
    .long 1, 4, lacks_tsc
    .long 1, 5, lacks_msr
    .long 1, 6, lacks_pae
    .long 1, 9, lacks_apic
    .long 1, 13, lacks_pge
    .long 1, 24, lacks_fxsr
    .long 1, 26, lacks_sse2
    .long 0
lacks:
    .asciz "foliant cannot run here: the CPU has no "
lacks_cpuid:
    .asciz "CPUID instruction"
lacks_long:
    .asciz "long mode (lm)"
lacks_nx:
    .asciz "no-execute pages (nx)"
lacks_giga:
    .asciz "1 GiB pages (pdpe1gb)"
lacks_tsc:
    .asciz "time-stamp counter (tsc)"
lacks_msr:
    .asciz "model-specific registers (msr)"
lacks_pae:
    .asciz "physical address extension (pae)"
lacks_apic:
    .asciz "APIC (apic)"
lacks_pge:
    .asciz "global pages (pge)"
lacks_fxsr:
    .asciz "FXSAVE (fxsr)"
lacks_sse2:
    .asciz "SSE2 (sse2)"
line_end:
    .asciz "\r\n"
lacks_memory:
    .asciz "foliant cannot run here: the loader has no memory for the kernel and its module\r\n"

.section .low.bss, "aw", @nobits
.balign 4096
.globl first_stack, first_stack_top
first_stack:                        # the manager is made on it, and is large
    .skip 262144
first_stack_top:
    .skip 4096
next_stack_top:

.text
next_high:                          # no stack yet. r8 becomes the number of the own interrupt controller (ApicId::own)
    xorl %eax, %eax
    cpuid
    cmpl $0xb, %eax
    jb 1f
    movl $0xb, %eax
    xorl %ecx, %ecx
    cpuid
    movl %edx, %r8d
    testl %ebx, %ebx
    jnz 2f
1:  movl $1, %eax
    cpuid
    shrl $24, %ebx
    movl %ebx, %r8d
2:  cmpq $0, start_with(%rip)
    je 3f
    cmpq %r8, start_with+24(%rip)
    jne 4f
    movq start_with(%rip), %rax
    movq start_with+8(%rip), %rsp
    movq start_with+16(%rip), %rdi
    movq %rax, %cr3
    xorl %ebp, %ebp
    call cpu_main
3:  lfence
    rdtsc                           # the roll call: when, then who
    shlq $32, %rdx
    orq %rdx, %rax
    movq %rax, answer(%rip)
    incq %r8
    movq %r8, answer+8(%rip)
4:  cli
    hlt
    jmp 4b

.data
.balign 8
.globl start_with, answer
start_with:                         # top table, stack, number, interrupt controller: whose turn it is, once the roll was called
    .quad 0, 0, 0, 0
answer:                             # time-stamp counter; interrupt controller and 1, or 0
    .quad 0, 0
