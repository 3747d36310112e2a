# The functions that compiled code expects of a C library. Eight bytes at a time: under emulation `rep movsb` runs byte by byte.
.text
.globl memcpy, memmove, memset, memcmp, bcmp, strlen
memmove:
    movq %rdi, %rax
    subq %rsi, %rax
    cmpq %rdx, %rax
    jb 1f                           # the target begins inside the source: backwards
memcpy:
    movq %rdi, %rax
    movq %rdx, %rcx
    shrq $3, %rcx
    rep movsq
    movl %edx, %ecx
    andl $7, %ecx
    rep movsb
    ret
1:  movq %rdi, %rax
    leaq -1(%rdi,%rdx), %rdi
    leaq -1(%rsi,%rdx), %rsi
    movl %edx, %ecx
    andl $7, %ecx
    std
    rep movsb
    subq $7, %rdi
    subq $7, %rsi
    movq %rdx, %rcx
    shrq $3, %rcx
    rep movsq
    cld
    ret
memset:
    movq %rdi, %r8
    movzbl %sil, %eax
    movabsq $0x0101010101010101, %rcx
    imulq %rcx, %rax
    movq %rdx, %rcx
    shrq $3, %rcx
    rep stosq
    movl %edx, %ecx
    andl $7, %ecx
    rep stosb
    movq %r8, %rax
    ret
memcmp:
bcmp:
    movq %rdx, %rcx
    xorl %eax, %eax
    cmpq %rcx, %rcx                 # equal, where nothing is compared
    repe cmpsb
    je 1f
    movzbl -1(%rdi), %eax
    movzbl -1(%rsi), %ecx
    subl %ecx, %eax
1:  ret
strlen:
    xorl %eax, %eax
1:  cmpb $0, (%rdi,%rax)
    je 2f
    incq %rax
    jmp 1b
2:  ret
