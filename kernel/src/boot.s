# From the loader to Rust: 32 bits without paging, then long mode on the first tables, then high addresses.
#
#   PVH entry (ebx = start info) ─▶ enter_long ─▶ first_high ─▶ kernel_main(start info)
#   SIPI at 0x8000 (16 bits)     ─▶ enter_long ─▶ next_high  ─▶ cpu_main(number), on its own tables and stack

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
    call enter_long
    ljmpl $0x08, $first_long

# Switches paging and long mode on. Uses eax, ecx, edx.
enter_long:
    movl %cr4, %eax
    orl $0x6a0, %eax                # PAE, PGE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $first_top, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx          # EFER
    rdmsr
    orl $0x900, %eax                # LME, NXE
    wrmsr
    movl %cr0, %eax
    andl $0x9ffffff3, %eax          # CD, NW, EM, TS off
    orl $0x80010023, %eax           # PG, WP, NE, MP, PE
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
first_top:                          # the low 4 GiB at 0 and in the direct map, the image high
    .quad first_low + 3
    .fill {direct_slot} - 1, 8, 0
    .quad first_low + 3
    .fill 510 - {direct_slot}, 8, 0
    .quad first_image + 3
first_low:
    .quad 0x83, 0x40000083, 0x80000083, 0xc0000083
    .fill 508, 8, 0
first_image:
    .fill 510, 8, 0
    .quad 0x83, 0x40000083

.section .low.bss, "aw", @nobits
.balign 4096
.globl first_stack, first_stack_top
first_stack:                        # the manager is made on it, and is large
    .skip 262144
first_stack_top:
    .skip 4096
next_stack_top:

.text
next_high:
    movq start_with(%rip), %rax
    movq start_with+8(%rip), %rsp
    movq start_with+16(%rip), %rdi
    movq %rax, %cr3
    xorl %ebp, %ebp
    call cpu_main
1:  hlt
    jmp 1b

.data
.balign 8
.globl start_with
start_with:                         # top table, stack, number
    .quad 0, 0, 0
