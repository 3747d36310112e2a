//! A program of 32 bits, for machines that have no compiler for such programs.

/// An executable without a library: it maps so many pages by the call with six arguments and
/// by the one that takes them from memory, writes to all of them, gives the first half back, and
/// ends with 5.
pub(crate) fn program(pages: u32) -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let word = |n: u32| n.to_le_bytes();
    let half = |n: u16| n.to_le_bytes();
    let int80 = [0xcd, 0x80];
    let mov = |register: u8, n: u32| [&[0xb8 + register][..], &word(n)].concat();
    let [eax, ecx, edx, ebx, ebp, esi, edi] = [0, 1, 2, 3, 5, 6, 7];
    let touch = [0xc6, 0x00, 0x01].iter().copied(); // movb $1, (%eax)
    let touch: Vec<u8> = touch.chain([0x05]).chain(word(4096)).chain([0x49, 0x75, 0xf5]).collect();
    let bytes = pages * 4096;
    let mut code = [mov(eax, 192), mov(ebx, 0), mov(ecx, bytes), mov(edx, 3)].concat();
    code.extend([mov(esi, 0x22), mov(edi, u32::MAX), mov(ebp, 0), int80.to_vec()].concat());
    code.extend([0x50]); // push %eax
    code.extend([mov(ecx, pages), touch.clone()].concat());
    // munmap(first, half)
    code.extend([&[0x5b][..], &mov(ecx, bytes / 2), &mov(eax, 91), &int80].concat());
    // The arguments of the old mmap, last one first.
    for argument in [0, u32::MAX, 0x22, 3, bytes, 0] {
        code.extend([&[0x68][..], &word(argument)].concat());
    }
    code.extend([&[0x89, 0xe3][..], &mov(eax, 90), &int80].concat()); // mov %esp, %ebx
    code.extend([mov(ecx, pages), touch].concat());
    code.extend([mov(ebx, 5), mov(eax, 1), int80.to_vec()].concat());
    let size = HEADERS + code.len() as u32;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([half(2), half(3)].concat());
    file.extend([1, BASE + HEADERS, 52, 0, 0].map(word).concat());
    file.extend([52, 32, 1, 0, 0, 0].map(half).concat());
    file.extend([1, 0, BASE, BASE, size, size, 5, 4096].map(word).concat());
    file.extend(code);
    file
}
