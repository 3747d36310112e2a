# Exceptions and interrupts.
#
# Precompiled code of this target uses the 128 bytes below its stack pointer and SSE registers. So every gate names an IST stack; the stub then
# hops: it copies what the CPU pushed to the interrupted stack below those 128 bytes (from ring 3: to where the kernel left its stack), which
# frees the IST stack, so handlers nest. Then general registers, FXSAVE, and the call.
#
#   frame:  r15 r14 r13 r12 r11 r10 r9 r8 rdi rsi rbp rbx rdx rcx rax  vector error  rip cs rflags rsp ss

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
    cld
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
    jmp 4f
3:  popq %rcx                       # no room: handled here, on the IST stack
    pushq %rcx
    leaq trap_without_stack(%rip), %rcx
4:  .irp register, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
    pushq %\register
    .endr
    movq %rsp, %rdi
    movq %rsp, %rbx
    subq $512, %rsp
    andq $-16, %rsp
    fxsaveq (%rsp)
    call *%rcx
    fxrstorq (%rsp)
    movq %rbx, %rsp
    cli                             # the handler may have let interrupts in
    .irp register, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
    popq %\register
    .endr
    addq $16, %rsp                  # vector, error
    testb $3, 8(%rsp)
    jz 5f
    swapgs
5:  iretq

# fn run_in_ring_3(start: &UserStart) -> u64: goes to ring 3 and comes back when a handler returns to `user_return`.
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
    xorl %eax, %eax
    xorl %ebx, %ebx
    xorl %ebp, %ebp
    swapgs
    iretq
user_return:                        # rsp as it was saved, rax the result, interrupts off
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

# The user programs: position-independent, no stack. Mapped at one kernel-half address that ring 3 may execute.
.section .rodata
.balign 4096
.globl user_programs, user_touch_read, user_touch_write, user_forbidden, user_programs_end
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
.balign 4096
user_programs_end:
