# Exceptions and interrupts.
#
# Precompiled code of this target uses the 128 bytes below its stack pointer and SSE registers. So every gate names an IST stack; the stub then
# hops: it copies what the CPU pushed to the interrupted stack below those 128 bytes (from ring 3: to where the kernel left its stack), which
# frees the IST stack, so handlers nest. Then general registers, FXSAVE, and the call, on the kernel's own flags, MXCSR and x87 (T3).
#
# Ticks in ring 3 are counted here, where it is entered and left, so that none of the kernel's instructions is among them: the constants
# below are the instructions between the reading of the counter and ring 3 (T7).
#
#   frame:  r15 r14 r13 r12 r11 r10 r9 r8 rdi rsi rbp rbx rdx rcx rax  vector error  rip cs rflags rsp ss

.set ENTER, 26                      # enter_ring_3
.set CALL, 21                       # call_entry
.set TRAP, 58                       # trap_hop, trap_save
.set RETURN, 23                     # trap_save's way back

# Reads the counter where the frame at rsp is ring 3's and a program answers for itself, whose registers are kept at rsi; else goes on at 1.
.macro count_program
    testb $3, 144(%rsp)
    jz 1f
    movq %gs:{kept}, %rsi
    testq %rsi, %rsi
    jz 1f
    rdtsc
    shlq $32, %rdx
.endm

.text
.balign 16
.globl trap_stubs
trap_stubs:
.set vector, 0
.rept 256
    .balign 16
    .if (vector == 8) || ((vector >= 10) && (vector <= 14)) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .else
    pushq $0
    .endif
    pushq $vector
    jmp trap_hop
    .set vector, vector + 1
.endr

trap_hop:
    pushq $2                        # T3: nothing of the interrupted flags: direction, alignment check, nested task, identification
    popfq
    pushq %rax
    pushq %rcx                      # 0 rcx, 8 rax, 16 vector, 24 error, 32 rip, 40 cs, 48 rflags, 56 rsp, 64 ss
    testb $3, 40(%rsp)
    jz 1f
    swapgs
    movq %gs:{user_stack}, %rax
    jmp 2f
1:  movq 56(%rsp), %rax
    subq $128, %rax
2:  andq $-16, %rax
    subq $64, %rax                  # seven words, and rax below them
    movq %gs:{stack_low}, %rcx
    cmpq %rcx, %rax
    jb 3f
    .irp word, 0, 8, 16, 24, 32, 40, 48
    movq 16+\word(%rsp), %rcx
    movq %rcx, \word(%rax)
    .endr
    movq 8(%rsp), %rcx
    movq %rcx, -8(%rax)
    movq (%rsp), %rcx
    leaq -8(%rax), %rsp
    pushq %rcx
    leaq trap(%rip), %rcx
    jmp trap_save
3:  popq %rcx                       # no room: handled here, on the IST stack
    pushq %rcx
    leaq trap_without_stack(%rip), %rcx
    jmp trap_save

# A program's call: rcx is where it goes on, r11 its flags. The processor switched neither stack nor GS; interrupts are out.
.globl call_entry
call_entry:
    swapgs
    movq %rsp, %gs:{call_stack}
    movq %gs:{kept}, %rsp
    testq %rsp, %rsp
    jz 1f
    movq %r15, 0(%rsp)              # as a frame: vector, and what the processor would have pushed
    movq %r14, 8(%rsp)
    movq %r13, 16(%rsp)
    movq %r12, 24(%rsp)
    movq %r11, 32(%rsp)
    movq %r10, 40(%rsp)
    movq %r9, 48(%rsp)
    movq %r8, 56(%rsp)
    movq %rdi, 64(%rsp)
    movq %rsi, 72(%rsp)
    movq %rbp, 80(%rsp)
    movq %rbx, 88(%rsp)
    movq %rdx, 96(%rsp)
    movq %rcx, 104(%rsp)
    movq %rax, 112(%rsp)
    rdtsc
    shlq $32, %rdx
    leaq -CALL(%rax, %rdx), %rax
    subq {entered}(%rsp), %rax
    addq %rax, {user}(%rsp)
    movq ${call_vector}, 120(%rsp)
    movq %rcx, 136(%rsp)
    movq %r11, 152(%rsp)
    movq %gs:{call_stack}, %rax
    movq %rax, 160(%rsp)
    fxsaveq {floats}(%rsp)
    movq %gs:{user_stack}, %rsp
    fninit
    ldmxcsr fresh_state+24(%rip)
    jmp come_back
1:  movq %gs:{user_stack}, %rsp     # of a program that does not answer for itself
    andq $-16, %rsp
    pushq ${user_data}
    pushq %gs:{call_stack}
    pushq %r11
    pushq ${user_code}
    pushq %rcx
    pushq $0
    pushq ${call_vector}
    pushq %rax
    pushq %rcx
    leaq trap(%rip), %rcx
    # falls into trap_save

# The stack has rcx, rax, vector and what the processor pushed; rcx is the handler.
trap_save:
    .irp register, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
    pushq %\register
    .endr
    movq %rsp, %rdi
    movq %rsp, %rbx
    count_program
    leaq -TRAP(%rax, %rdx), %rax
    subq {entered}(%rsi), %rax
    addq %rax, {user}(%rsi)
1:  subq $512, %rsp
    andq $-16, %rsp
    fxsaveq (%rsp)
    fninit                          # T3; it does not wait for an exception that is pending in there
    ldmxcsr fresh_state+24(%rip)
    call *%rcx
    fxrstorq (%rsp)
    movq %rbx, %rsp
    cli                             # the handler may have let interrupts in
    count_program
    leaq RETURN(%rax, %rdx), %rax
    movq %rax, {entered}(%rsi)
1:  .irp register, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
    popq %\register
    .endr
    addq $16, %rsp                  # vector, error
    testb $3, 8(%rsp)
    jz 5f
    swapgs
5:  iretq

# fn run_in_ring_3(start: &UserStart) -> u64: goes to ring 3 and comes back when a handler returns to `user_return`. Neither way does any
# register take along what it held (T4); FNINIT first, as FXRSTOR leaves the addresses of the last x87 instruction on some CPUs.
.globl run_in_ring_3, user_return
run_in_ring_3:
    pushq %rbp
    movq %rsp, %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    pushfq
    cli
    pushq %gs:{user_stack}          # runs nest
    movq %rsp, %gs:{user_stack}
    pushq ${user_data}
    pushq $0                        # no stack
    pushq $0x202
    pushq ${user_code}
    pushq (%rdi)
    movq 16(%rdi), %rsi
    movq 24(%rdi), %rdx
    movq 32(%rdi), %rcx
    movq 8(%rdi), %rdi
    fninit
    fxrstorq fresh_state(%rip)
    .irp register, eax, ebx, ebp, r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d
    xorl %\register, %\register
    .endr
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %fs
    swapgs
    movl %eax, %gs                  # its base is ring 3's, 0
    iretq
user_return:                        # rsp as it was saved, rax the result, all others 0, interrupts off
    fninit
    fxrstorq fresh_state(%rip)
    movl %ecx, %ds
    movl %ecx, %es
    movl %ecx, %fs
    popq %gs:{user_stack}
    popfq
    nop
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret

# fn enter_ring_3(kept: &Kept): the same for a thread of a program, whose registers are all as they are kept there; it comes back when a
# program makes a call, or a handler returns to `left_ring_3`, and they are kept by then. Segment registers, bases and the upper halves of
# AVX registers stay ring 3's. Interrupts are in.
.globl enter_ring_3, left_ring_3
enter_ring_3:
    pushq %rbp
    movq %rsp, %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    cli
    pushq %gs:{user_stack}
    movq %rsp, %gs:{user_stack}
    rdtsc
    shlq $32, %rdx
    leaq ENTER(%rax, %rdx), %rax
    movq %rax, {entered}(%rdi)
    fxrstorq {floats}(%rdi)
    .irp word, 168, 160, 152, 144, 136      # ss, rsp, rflags, cs, rip
    pushq \word(%rdi)
    .endr
    movq 0(%rdi), %r15
    movq 8(%rdi), %r14
    movq 16(%rdi), %r13
    movq 24(%rdi), %r12
    movq 32(%rdi), %r11
    movq 40(%rdi), %r10
    movq 48(%rdi), %r9
    movq 56(%rdi), %r8
    movq 72(%rdi), %rsi
    movq 80(%rdi), %rbp
    movq 88(%rdi), %rbx
    movq 96(%rdi), %rdx
    movq 104(%rdi), %rcx
    movq 112(%rdi), %rax
    movq 64(%rdi), %rdi
    swapgs
    iretq
left_ring_3:                        # rsp as it was saved, interrupts off; x87 and SSE hold what the program left
    fninit
    fxrstorq fresh_state(%rip)
come_back:
    popq %gs:{user_stack}
    sti
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret

# fn store_uppers(to: &mut Uppers), fn load_uppers(from: &Uppers): the upper halves of the AVX registers.
.globl store_uppers, load_uppers
store_uppers:
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vextractf128 $1, %ymm\number, 16*\number(%rdi)
    .endr
    ret
load_uppers:
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vinsertf128 $1, 16*\number(%rdi), %ymm\number, %ymm\number
    .endr
    ret

# fn switch_stack(from: *mut u64, to: u64): goes on where another stack was left; comes back when somebody goes on here. What is kept lies on
# the stack: registers that a callee keeps. A stack that nobody was on begins with six words and where to go.
.globl switch_stack
switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret

# fn attempt(work: extern "C" fn(usize), argument: usize) -> u64: 0, or what a handler that returned to `attempt_failed` left in rax.
.globl attempt, attempt_failed
attempt:
    pushq %rbp
    movq %rsp, %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $8, %rsp
    movq %rsp, %gs:{attempt_stack}
    movq %rdi, %rax
    movq %rsi, %rdi
    call *%rax
    xorl %eax, %eax
attempt_failed:
    movq $0, %gs:{attempt_stack}
    addq $8, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret

# x87 and SSE as a program finds them: control word, MXCSR, and nothing else.
.section .rodata
.balign 16
fresh_state:
    .quad 0x37f, 0, 0
    .long 0x1f80, 0
    .fill 480, 1, 0

# The user programs: position-independent, no stack. Mapped at one kernel-half address that ring 3 may execute.
.section .rodata
.balign 4096
.globl user_programs, user_touch_read, user_touch_write, user_forbidden, user_return_only, user_tables, user_keep, user_look, user_programs_end
user_programs:
user_touch_read:                    # rdi = first, rsi = end, rdx = stride; first is below end
    movq (%rdi), %rax
    addq %rdx, %rdi
    cmpq %rsi, %rdi
    jb user_touch_read
    xorl %eax, %eax
    int $0x80
user_touch_write:
    movq %rdi, (%rdi)
    addq %rdx, %rdi
    cmpq %rsi, %rdi
    jb user_touch_write
    xorl %eax, %eax
    int $0x80
user_forbidden:
    hlt
user_return_only:                   # for whoever calls it in ring 0
    ret
user_tables:                        # where the kernel's tables are
    sgdt (%rdi)
    xorl %eax, %eax
    int $0x80

# Two programs work on one page of notes at rdi (tests/rings.rs has the same numbers):
#
#   0 MXCSR · 4 control word · 8 flags · 16 a word twice · 32 go on · 36 is ready · 40 flags found · 48 DS ES FS GS found
#   64 general registers found, rax first · 512 and 1024 FXSAVE images · 4096 the stack's end
user_keep:                          # marks every register, waits, and notes what became of the marks
    ldmxcsr (%rdi)
    fldcw 4(%rdi)
    fldpi
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups 16(%rdi), %xmm\number
    .endr
    fxsaveq 512(%rdi)
    leaq 4096(%rdi), %rsp
    .irp register, rax, rcx, rdx, rbx, rbp, rsi, r8, r9, r10, r11, r12, r13, r14, r15
    movq 16(%rdi), %\register
    .endr
    pushq 8(%rdi)
    popfq
    movl $1, 36(%rdi)
1:  pause
    cmpl $0, 32(%rdi)
    je 1b
user_look:                          # notes what it finds
    movq %rax, 64(%rdi)
    movq %rcx, 72(%rdi)
    movq %rdx, 80(%rdi)
    movq %rbx, 88(%rdi)
    movq %rsp, 96(%rdi)
    movq %rbp, 104(%rdi)
    movq %rsi, 112(%rdi)
    .irp number, 8, 9, 10, 11, 12, 13, 14, 15
    movq %r\number, 120+8*(\number-8)(%rdi)
    .endr
    movw %ds, 48(%rdi)
    movw %es, 50(%rdi)
    movw %fs, 52(%rdi)
    movw %gs, 54(%rdi)
    leaq 4096(%rdi), %rsp
    pushfq
    popq 40(%rdi)
    fxsaveq 1024(%rdi)
    movl ${user_data}, %eax         # for whoever comes next to find
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %fs
    movl %eax, %gs
    xorl %eax, %eax
    int $0x80
.balign 4096
user_programs_end:
