//! Everything that can be asked for wrongly, as one table: what is asked, and what the answer says.
//!
//! Each answer is one sentence on standard error with the value and the way out, and the usage
//! where the words are wrong and not a value; nothing is on standard output. None of them speaks as
//! a library, the system or a debugger does.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `code | words | a part of the answer | another part`. The code is 2 where what was asked for
/// cannot be done, and 1 where it was done and came out badly. `NAME=value` before the words is
/// the environment, `''` an empty word. The files are those of [`files`].
const TABLE: &str = "
2 | repaly                                    | there is no command repaly | there are replay, record
2 | ''                                        | there is no command        | replay, record
2 | --json                                    | no option --json           | `foliant --help`
2 | -x                                        | no option -x               | `foliant --help`
2 | help repaly                               | there is no command repaly | replay, record

2 | replay                                    | `foliant replay` needs FILE      | `foliant replay --help`
2 | replay ''                                 | FILE needs a value         | --help
2 | replay missing.trace                      | there is no file missing.trace | foliant record -o missing.trace
2 | replay nowhere/x.trace                    | there is no file nowhere/x.trace | foliant record
2 | replay good.trace/x                       | good.trace/x cannot be read (a part of the path is no folder) | foliant record
2 | replay folder                             | folder cannot be read (it is a folder) | foliant record
2 | replay cut.trace                          | cut.trace: the trace is cut off | copy or record it again
2 | replay newer.trace                        | newer.trace: the trace has version 99 | use a newer foliant
2 | replay damaged.trace                      | damaged.trace: block       | copy or record it again
2 | replay longer.trace                       | longer.trace: something follows | copy or record it again
2 | replay other.trace                        | other.trace: this is not a Foliant trace | foliant record
2 | replay empty.trace                        | empty.trace: this is not a Foliant trace | foliant record
2 | replay good.trace --policy 4k --json missing.trace | there is no file missing.trace | foliant record
2 | replay good.trace --frob                  | `foliant replay` has no option --frob | `foliant replay --help`
2 | replay good.trace --fragment              | --fragment needs a value   | --help
2 | replay good.trace --fragment ''           | --fragment cannot be ''    | 0 to 100
2 | replay good.trace --fragment 101          | --fragment cannot be '101' | 0 to 100
2 | replay good.trace --fragment=-1           | --fragment cannot be '-1'  | 0 to 100
2 | replay good.trace --fragment half         | --fragment cannot be 'half' | 0 to 100
2 | replay good.trace --fragment 0.5          | --fragment cannot be '0.5' | 0 to 100
2 | replay good.trace --defrag sometimes      | --defrag cannot be 'sometimes' | always, defer, defer+madvise, madvise, never
2 | replay good.trace --defrag ''             | --defrag cannot be ''      | always, defer
2 | replay good.trace --defrag never          | --defrag never             | add --fragment PCT or --memory SIZE
2 | replay good.trace --defrag always --fragment 0 | --defrag always       | leave it out
2 | replay good.trace --cpus 0                | --cpus cannot be '0'       | 1 to 1024
2 | replay good.trace --cpus 1025             | --cpus cannot be '1025'    | 1 to 1024
2 | replay good.trace --cpus two              | --cpus cannot be 'two'     | 1 to 1024
2 | replay good.trace --cpus 1.5              | --cpus cannot be '1.5'     | 1 to 1024
2 | replay good.trace --cpus 99999999999999999999 | --cpus cannot be '99999999999999999999' | 1 to 1024
2 | replay good.trace --cpus 1 --cpus 2       | --cpus is given twice      | leave one
2 | replay good.trace --model laptop          | --model cannot be 'laptop' | xeon-guest-2, host-8-socket, guest-252, here
2 | replay good.trace --model ''              | --model cannot be ''       | xeon-guest-2
2 | replay good.trace --model here            | --model cannot be 'here'   | run `foliant calibrate` first
2 | replay good.trace --memory 0              | --memory cannot be '0'     | use 9m to 1t
2 | replay good.trace --memory 1k             | --memory cannot be '1k'    | use 9m to 1t
2 | replay good.trace --memory 2t             | --memory cannot be '2t'    | use 9m to 1t
2 | replay good.trace --memory lots           | --memory cannot be 'lots'  | like 64k or 2m
2 | replay good.trace --memory 64x            | --memory cannot be '64x'   | k, m, g or t
2 | replay good.trace --memory=-1g            | --memory cannot be '-1g'   | like 64k or 2m
2 | replay good.trace --memory 99999999999999999999 | --memory cannot be '99999999999999999999' | use 9m to 1t
2 | replay good.trace --memory 16m            | 16m                        | --memory
2 | replay good.trace --budget 1k             | --budget cannot be '1k'    | use 64m to 1t
2 | replay good.trace --budget 2t             | --budget cannot be '2t'    | use 64m to 1t
2 | replay good.trace --budget much           | --budget cannot be 'much'  | like 64k or 2m
2 | replay good.trace --policy 64k            | '64k' says one size        | up-to-64k (every size up to it) or only-64k
2 | replay good.trace --policy huge           | 'huge' names no policy     | use 4k, up-to-16k to up-to-2m
2 | replay good.trace --policy ''             | '' names no policy         | use 4k, up-to-16k
2 | replay good.trace --policy up-to-64k,,4k  | '' names no policy         | with commas between
2 | replay good.trace --policy up-to-48k      | 48k is not a power of two of 4k | use 4k, up-to-16k
2 | replay good.trace --policy only-8k        | 8k is no folio size        | 16k to 2m
2 | replay good.trace --policy only-1g        | 1g is no folio size        | 16k to 2m
2 | replay good.trace --json=yes              | --json takes no value      | leave 'yes' out

2 | record                                    | `foliant record` needs COMMAND | `foliant record --help`
2 | record -o                                 | --output needs a value     | --help
2 | record -o new.trace                       | `foliant record` needs COMMAND | `foliant record --help`
2 | record -o new.trace no-such-program       | no program 'no-such-program' | give its path or check PATH
2 | record -o new.trace ./empty.trace         | './empty.trace' cannot be run | check its rights and format
2 | record -o new.trace ./folder              | './folder' cannot be run   | check its rights
2 | record -o nowhere/new.trace true          | nowhere/new.trace cannot be written (there is no such folder or file) | with -o
2 | record -o good.trace/x true               | good.trace/x cannot be written (a part of the path is no folder) | with -o
2 | record --pid 0                            | --pid cannot be '0'        | `ps -e` lists them
2 | record --pid=-5                           | --pid cannot be '-5'       | `ps -e` lists them
2 | record --pid init                         | --pid cannot be 'init'     | `ps -e` lists them
2 | record --pid 4294967295                   | --pid cannot be '4294967295' | `ps -e` lists them
2 | record --pid ''                           | --pid cannot be ''         | `ps -e` lists them
2 | record --pid 999999999                    | process 999999999 cannot be recorded
2 | record --pid 1 true                       | --pid does not go with COMMAND | leave one
2 | record --pid 1 --cgroup x                 | --pid does not go with --cgroup | leave one
2 | record --pid 1 --only x                   | --pid                      | leave one
2 | record --cgroup no/such/group             | cgroup no/such/group cannot be recorded
2 | record --cgroup x true                    | --cgroup does not go with COMMAND | leave one
2 | record --for 10 true                      | --for cannot be '10'       | like 500ms, 30s, 5m or 2h
2 | record --for 0s true                      | --for cannot be '0s'       | like 500ms
2 | record --for=-1s true                     | --for cannot be '-1s'      | like 500ms
2 | record --for 5d true                      | --for cannot be '5d'       | like 500ms
2 | record --for 999999h true                 | --for cannot be '999999h'  | at most 31 days
2 | record --for soon true                    | --for cannot be 'soon'     | like 500ms
2 | record --for '' true                      | --for cannot be ''         | like 500ms
2 | record --only                             | --only needs a value       | --help
2 | record --only x                           | `foliant record` needs COMMAND | `foliant record --help`
2 | record --json true                        | --json does not go with COMMAND | leave one
2 | record --json                             | `foliant record` needs COMMAND | `foliant record --help`
2 | SUDO_UID=somebody SUDO_GID=1 record true  | SUDO_UID is 'somebody'     | unset it, or call sudo

2 | trace                                     | `foliant trace` needs FILE | `foliant trace --help`
2 | trace good.trace good.trace               | good.trace is one word too many | `foliant trace --help`
2 | trace missing.trace                       | there is no file missing.trace | foliant record -o missing.trace
2 | trace folder                              | folder cannot be read (it is a folder) | foliant record
2 | trace cut.trace                           | cut.trace: the trace is cut off | copy or record it again
2 | trace newer.trace                         | newer.trace: the trace has version 99 | use a newer foliant
2 | trace damaged.trace                       | damaged.trace: block       | copy or record it again
2 | trace longer.trace                        | longer.trace: something follows | copy or record it again
2 | trace other.trace                         | other.trace: this is not a Foliant trace | foliant record
2 | trace empty.trace                         | empty.trace: this is not a Foliant trace | foliant record
2 | trace --dump missing.trace                | there is no file missing.trace | foliant record -o
2 | trace --dump folder                       | folder cannot be read      | foliant record
2 | trace --dump other.trace                  | other.trace: this is not a Foliant trace | foliant record
2 | trace --dump --json newer.trace           | newer.trace: the trace has version 99 | use a newer foliant
2 | trace good.trace --budget 63m             | --budget cannot be '63m'   | use 64m to 1t
2 | trace good.trace --budget ''              | --budget cannot be ''      | like 64k or 2m
2 | trace good.trace --budget 1.5g            | --budget cannot be '1.5g'  | k, m, g or t

2 | run                                       | `foliant run` needs --plan FILE | `foliant run --help`
2 | run true                                  | `foliant run` needs --plan FILE | `foliant run --help`
2 | run --plan                                | --plan needs a value       | --help
2 | run --plan missing.json                   | `foliant run` needs COMMAND | `foliant run --help`
2 | run --plan missing.json true              | the plan missing.json cannot be read (there is no such folder or file) | foliant advise FILE --plan-out missing.json
2 | run --plan folder true                    | the plan folder cannot be read (it is a folder) | foliant advise
2 | run --plan good.trace true                | the plan good.trace cannot be read | foliant advise
2 | run --plan empty.trace true               | empty.trace is no plan     | foliant advise
2 | run --plan other.trace true               | other.trace is no plan     | foliant advise
2 | run --plan off.json no-such-program       | no program 'no-such-program' | give its path or check PATH
2 | run --plan off.json ./empty.trace         | './empty.trace' cannot be run | check its rights
2 | run --plan off.json --stats table no-such-program | no program 'no-such-program' | give its path or check PATH
2 | run --plan off.json --plan off.json true  | --plan is given twice      | leave one
2 | run --plan off.json --stats true          | --stats cannot be 'true'   | use table or json
2 | run --plan off.json --stats '' true       | --stats cannot be ''       | use table or json
2 | run --plan off.json --switches=yes true   | --switches takes no value  | leave 'yes' out
2 | run --plan off.json                       | `foliant run` needs COMMAND | `foliant run --help`
2 | SUDO_UID=somebody SUDO_GID=1 run --plan off.json true | SUDO_UID is 'somebody' | unset it, or call sudo

2 | check                                     | `foliant check` needs COMMAND | `foliant check --help`
2 | check --runs 0 true                       | --runs cannot be '0'       | 1 to 99
2 | check --runs 100 true                     | --runs cannot be '100'     | 1 to 99
2 | check --runs many true                    | --runs cannot be 'many'    | 1 to 99
2 | check --runs                              | --runs needs a value       | --help
2 | check --policy 2m true                    | '2m' says one size         | up-to-2m (every size up to it) or only-2m
2 | check --policy '' true                    | '' names no policy         | use 4k, up-to-16k
2 | check --prepare                           | --prepare needs a value    | --help
2 | check --pages 5 true                      | --pages does not go with COMMAND | leave one
2 | check --pages 5                           | `foliant check` needs COMMAND | `foliant check --help`
2 | check --plan                              | --plan needs a value       | --help
2 | check --plan missing.json true            | the plan missing.json cannot be read | foliant advise FILE --plan-out missing.json
2 | check --plan other.trace true             | other.trace is no plan     | foliant advise
2 | check --plan off.json --policy 4k true    | --plan does not go with --policy LIST | leave one
2 | check --plan off.json --runs 0 true       | --runs cannot be '0'       | 1 to 99
2 | check --plan off.json                     | `foliant check` needs COMMAND | `foliant check --help`
2 | check --hugetlb --plan off.json           | --hugetlb does not go with --plan | leave one
2 | check --hugetlb --pages 0                 | --pages cannot be '0'      | 1 to 1000000
2 | check --hugetlb --pages 1000001           | --pages cannot be '1000001' | 1 to 1000000
2 | check --hugetlb --pages all               | --pages cannot be 'all'    | 1 to 1000000
2 | check --hugetlb true                      | --hugetlb does not go with COMMAND | leave one
2 | check --hugetlb --policy 4k               | --hugetlb does not go with --policy | leave one
2 | check --hugetlb --prepare x               | --hugetlb does not go with --prepare | leave one

2 | calibrate here                            | here is one word too many for `foliant calibrate` | `foliant calibrate --help`
2 | calibrate --rounds 3                      | `foliant calibrate` has no option --rounds | `foliant calibrate --help`
2 | XDG_DATA_HOME= HOME=here calibrate        | neither XDG_DATA_HOME nor HOME is an absolute path | set one
2 | XDG_DATA_HOME=/dev/null calibrate         | cannot be written (a part of the path is no folder) | XDG_DATA_HOME

2 | lab fault                                 | fault: there is no such scenario | there are faults, flush
2 | lab ''                                    | there is no such scenario  | there are faults, flush
2 | lab pages=5                               | pages=5: there is no such scenario | foliant lab --list
2 | lab --list flush                          | --list goes with nothing else | `foliant lab --help`
2 | lab --list --json                         | --list goes with nothing else | `foliant lab --help`
2 | lab --list --truth                        | --list goes with nothing else | `foliant lab --help`
2 | lab --list --cpus 4                       | --list goes with nothing else | `foliant lab --help`
2 | lab --cpus 8                              | --cpus is for a scenario, and none is named | foliant lab --list
2 | lab --memory 1g                           | --memory is for a scenario, and none is named | foliant lab --list
2 | lab --model guest-252                     | --model is for a scenario, and none is named | foliant lab --list
2 | lab --explain                             | --explain is for a scenario | foliant lab --list
2 | lab --icount                              | --icount is for the kernel | --truth
2 | lab flush --icount                        | --icount is for the kernel | --truth
2 | lab flush --threads multi                 | --threads is for the kernel | --truth
2 | lab flush --xapic                         | --xapic is for the kernel  | --truth
2 | lab flush --timeout 5                     | --timeout is for the kernel | --truth
2 | lab flush --machine pc                    | --machine is for the kernel | --truth
2 | lab flush --kernel good.trace             | --kernel is for the kernel | --truth
2 | lab deadlines --xapic                     | --xapic is for the kernel  | --truth
2 | lab zero --icount                         | --icount is for the kernel | --truth
2 | lab zero --cpus 4                         | --cpus is for a simulated machine | foliant lab --list
2 | lab zero --memory 1g                      | --memory is for a simulated machine | foliant lab --list
2 | lab zero --model guest-252                | --model is for a simulated machine | foliant lab --list
2 | lab zero --explain --json                 | --explain adds words to the table | leave one
2 | lab zero --size 4k                        | --size cannot be '4k'      | use 2m or 1g
2 | lab zero --size ''                        | --size cannot be ''        | use 2m or 1g
2 | lab zero --total 1k                       | --total cannot be '1k'     | use 9m to 1t
2 | lab zero --total lots                     | --total cannot be 'lots'   | like 64k or 2m
2 | lab zero --rounds 0                       | --rounds cannot be '0'     | 1 to 99
2 | lab zero --rounds 100                     | --rounds cannot be '100'   | 1 to 99
2 | lab zero --rounds x                       | --rounds cannot be 'x'     | 1 to 99
2 | lab zero bytes=2m --rounds 3              | --rounds is for `foliant lab zero` without parameters | foliant lab --list
2 | lab flush --rounds 3                      | --rounds is for `foliant lab zero` without parameters | foliant lab --list
2 | lab flush --total 1g                      | --total is for `foliant lab zero` without parameters | foliant lab --list
2 | lab flush --explain                       | --explain is for `foliant lab zero` | foliant lab --list
2 | lab flush --size 2m                       | --size is for `foliant lab zero` | foliant lab --list
2 | lab deadlines some                        | some is no scale of deadlines | say nothing, or `full`
2 | lab deadlines full more                   | more is one word too many  | `foliant lab deadlines full`
2 | lab deadlines --cpus 4                    | --cpus is not for deadlines | leave it out
2 | lab deadlines --model guest-252           | --model is not for deadlines | leave it out
2 | lab deadlines --explain                   | --explain is not for deadlines | leave it out
2 | lab --truth --size 1g                     | --size is for `foliant lab zero` | leave it out
2 | lab --truth flush --rounds 3              | --rounds is for `foliant lab zero` | leave it out
2 | lab --truth pages=5                       | pages=5: there is no such scenario | there are faults, flush
2 | lab --truth flush pages=1 fault           | fault: there is no such scenario | there are faults, flush
2 | lab flush 512                             | 512 is no parameter        | one looks like name=value
2 | lab flush page=1                          | page=1: flush has other parameters | pages, grains
2 | lab flush --page 1                        | no option --page           | `foliant lab --help`
2 | lab flush --pages                         | pages=: pages is a whole number | 1 to 131072
2 | lab flush pages=1 pages=2                 | pages=1 and pages=2 are one parameter | leave one of them out
2 | lab flush --pages 1 pages=2               | pages=1 and pages=2 are one parameter | leave one of them out
2 | lab flush pages=0                         | pages=0: pages is a whole number | 1 to 131072
2 | lab flush pages=131073                    | pages=131073               | 1 to 131072
2 | lab flush pages=many                      | pages=many                 | 1 to 131072
2 | lab flush grains=0                        | grains=0: grains is flush grains | whole numbers from 1 on, or whole
2 | lab flush grains=1,                       | grains=1,                  | with commas between
2 | lab flush --cpus 0                        | --cpus cannot be '0'       | 1 to 1024
2 | lab flush --memory 1m                     | --memory cannot be '1m'    | use 9m to 1t
2 | lab flush --model laptop                  | --model cannot be 'laptop' | xeon-guest-2
2 | lab flush --memory 9m pages=4000          | memory ran out             | give the machine more
2 | lab faults bytes=1m                       | bytes=1m                   | a multiple of 2m, at most 1g
2 | lab faults bytes=2g                       | bytes=2g                   | at most 1g
2 | lab faults bytes=512m                     | all CPUs together would touch 2g | at most 1022m
2 | lab faults sizes=8k                       | sizes=8k                   | 4k, and 16k to 2m
2 | lab faults sizes=4k,huge                  | sizes=4k,huge              | 4k, and 16k to 2m
2 | lab zero bytes=0                          | bytes=0                    | a multiple of 2m
2 | lab zero block=3m                         | block=3m                   | a multiple of 2m
2 | lab hugetlb --pages 500001                | pages=500001               | 1 to 500000
2 | lab hugetlb --size 4k                     | size=4k                    | 2m or 1g
2 | lab hugetlb --rows of                     | rows=of                    | off, grain1, batched, born_folded
2 | lab hugetlb --batch 1025                  | batch=1025                 | 1 to 1024
2 | lab hugetlb --rounds 100                  | rounds=100                 | 1 to 99
2 | lab hugetlb --memory 64m                  | memory ran out             | 64m
2 | lab vmalloc --table-size 5000             | table-size=5000            | a multiple of 4k
2 | lab vmalloc --table-size 8g               | table-size=8g              | at most 4g
2 | lab vmalloc --memory 16m --table-size 15m | memory ran out             | 16m
2 | lab vmalloc --device 1m                   | device=1m                  | a multiple of 2m
2 | lab vmalloc --sizes 0                     | sizes=0                    | 1 to 100000
2 | lab split spaces=65                       | spaces=65                  | 1 to 64
2 | lab split folios=257                      | folios=257                 | 1 to 256
2 | lab split grains=page                     | grains=page                | entry, folio, list
2 | lab thpscale workers=65                   | workers=65                 | 1 to 64
2 | lab thpscale workers=1,8                  | workers=1,8 asks for 8 of 4 CPUs | --cpus
2 | lab thpscale turns=505                    | turns=505                  | 1 to 504
2 | lab thpscale grains=all                   | grains=all                 | or whole
2 | lab compare pages=0                       | pages=0                    | 1 to 131072
2 | lab compare areas=100001                  | areas=100001               | 1 to 100000
2 | lab compare running=5                     | running=5 asks for 5 of 4 CPUs | --cpus
2 | lab compare rows=most                     | rows=most                  | sizes, calls, split, pool, areas, shared
2 | lab compare rows=calls sizes=4k           | sizes=4k is for the rows sizes | rows=calls
2 | lab compare rows=calls areas=10           | areas=10 is for the rows areas | rows=calls

2 | compare --kernel good.trace               | COMMAND                    | --help
2 | compare --kernel good.trace --published pools | --published cannot be 'pools' | use one of pool, touch
2 | compare --kernel good.trace --published pool=0 | --published cannot be 'pool=0' | from 1 to
2 | compare --kernel good.trace --published fragment=1 | --published cannot be 'fragment=1' | from 2 to 255
2 | compare --kernel good.trace --published compile=2 | --published cannot be 'compile=2' | use compile
2 | compare --kernel good.trace --published split --rounds 2 | --published does not go with --rounds | leave one
2 | compare --kernel good.trace --published split --size 4k | --published does not go with --size | leave one
2 | compare --kernel good.trace --published split -- true | --published does not go with | leave one

2 | boot --cpus 0                             | --cpus cannot be '0'       | 1 to 255
2 | boot --cpus 1025                          | --cpus cannot be '1025'    | 1 to 255
2 | boot --cpus 256                           | --cpus cannot be '256'     | 1 to 255
2 | boot --memory 1m                          | --memory cannot be '1m'    | 8m to 512g
2 | boot --memory 7m                          | --memory cannot be '7m'    | 8m to 512g
2 | boot --memory 513g                        | --memory cannot be '513g'  | 8m to 512g
2 | boot --memory 8200k                       | --memory cannot be '8200k' | in whole MiB
2 | boot --memory some                        | --memory cannot be 'some'  | 8m to 512g
2 | boot --lab                                | --lab needs a value        | --help
2 | boot --lab nothing                        | nothing: there is no such scenario | there are faults, flush
2 | boot --lab flush pages=0                  | pages=0: pages is a whole number | 1 to 131072
2 | boot --lab flush --pages 0                | pages=0: pages is a whole number | 1 to 131072
2 | boot --lab flush pages=1 pages=1          | pages=1 and pages=1 are one parameter | leave one of them out
2 | boot --lab thpscale workers=9             | workers=9 asks for 9 of 4 CPUs | --cpus
2 | boot --lab flush --laws                   | --lab does not go with --laws | leave one
2 | boot --laws --shell                       | --laws does not go with --shell | leave one
2 | boot --json                               | `foliant boot` needs --lab NAME | `foliant boot --help`
2 | boot pages=1                              | `foliant boot` needs --lab NAME | `foliant boot --help`
2 | boot --icount --threads multi             | --icount does not go with --threads | leave one
2 | boot --threads many                       | --threads cannot be 'many' | use one of multi, single
2 | boot --timeout 0                          | --timeout cannot be '0'    | 1 to 86400
2 | boot --timeout 86401                      | --timeout cannot be '86401' | 1 to 86400
2 | boot --timeout 5m                         | --timeout cannot be '5m'   | 1 to 86400
2 | boot --machine toaster                    | --machine cannot be 'toaster' | use one of q35, pc, microvm
2 | boot --machine ''                         | --machine cannot be ''     | use one of q35, pc, microvm
2 | FOLIANT_QEMU=good.trace boot --kernel missing | there is no kernel missing | leave --kernel out
2 | FOLIANT_QEMU=good.trace boot --kernel folder | there is no kernel folder | leave --kernel out
2 | FOLIANT_QEMU=missing boot                 | FOLIANT_QEMU names missing | unset it
2 | FOLIANT_QEMU=folder boot                  | FOLIANT_QEMU names folder  | unset it
2 | FOLIANT_QEMU=./good.trace boot --kernel good.trace | ./good.trace does not start (permission denied) | FOLIANT_QEMU
2 | PATH=/nowhere boot                        | qemu-system-x86_64 is not installed | apt-get install
2 | PATH=/nowhere lab --truth                 | qemu-system-x86_64 is not installed | apt-get install

2 | sim --seed x                              | --seed cannot be 'x'       | 0 to 2^64 - 1
2 | sim --seed=-1                             | --seed cannot be '-1'      | 0 to 2^64 - 1
2 | sim --seed 18446744073709551616           | --seed cannot be '18446744073709551616' | 0 to 2^64 - 1
2 | sim --seed ''                             | --seed cannot be ''        | 0 to 2^64 - 1
2 | sim --plant no-such                       | --plant cannot be 'no-such' | foliant sim --plants
2 | sim --plant ''                            | --plant cannot be ''       | foliant sim --plants
2 | sim --plants --seed 3                     | --plants goes with nothing else | `foliant sim --help`
2 | sim --plants --json                       | --plants goes with nothing else | `foliant sim --help`
2 | sim --cpus 0                              | --cpus cannot be '0'       | 1 to 64
2 | sim --cpus 65                             | --cpus cannot be '65'      | 1 to 64
2 | sim --cpus all                            | --cpus cannot be 'all'     | 1 to 64
2 | sim --steps 0                             | --steps cannot be '0'      | 1 to 1000000
2 | sim --steps 1000001                       | --steps cannot be '1000001' | 1 to 1000000
2 | sim --steps few                           | --steps cannot be 'few'    | 1 to 1000000
2 | sim --style loud                          | --style cannot be 'loud'   | partitioned, racing, folding, pooled, ranges or objects
2 | sim --fail 0                              | --fail cannot be '0'       | 1 to 2^64 - 1
2 | sim --fail x                              | --fail cannot be 'x'       | 1 to 2^64 - 1
2 | sim 5                                     | 5 is one word too many for `foliant sim` | `foliant sim --help`
1 | sim --seed 7 --steps 20 --fail 1000000    | --fail 1000000 refused nothing | use a smaller number
1 | sim --seed 7 --plant late-copy --cpus 1 --steps 1 | late-copy struck 0 times | another seed or more steps

2 | report page.html                          | there is no file page.html | foliant record -o page.html
2 | report ''                                 | FILE needs a value         | --help
2 | report good.trace page.html               | page.html is one word too many | `foliant report --help`
2 | report folder                             | folder cannot be read (it is a folder) | foliant record
2 | report cut.trace                          | cut.trace: the trace is cut off | copy or record it again
2 | report other.trace                        | other.trace: this is not a Foliant trace | foliant record
2 | report good.trace --quick                 | FILE does not go with --quick | leave one
2 | report --budget 1g                        | `foliant report` needs FILE | `foliant report --help`
2 | report good.trace --budget 63m            | --budget cannot be '63m'   | use 64m to 1t
2 | report good.trace --budget ''             | --budget cannot be ''      | like 64k or 2m
2 | report good.trace --budget                | --budget needs a value     | --help
2 | report good.trace -o folder               | folder is a folder         | -o
2 | report good.trace -o nowhere/page.html    | nowhere/page.html cannot be written (there is no such folder or file) | -o
2 | report good.trace --policy 4k             | `foliant report` has no option --policy | `foliant report --help`
2 | report -o                                 | --output needs a value     | --help
2 | report -o folder                          | folder is a folder         | -o
2 | report -o nowhere/page.html               | nowhere/page.html cannot be written (there is no such folder or file) | -o
2 | report -o good.trace/page.html            | good.trace/page.html cannot be written (a part of the path is no folder) | -o
2 | report --quick --cpus 3                   | `foliant report` has no option --cpus | `foliant report --help`

2 | schema nothing                            | there is no document nothing | there are replay, record
2 | advise                                    | `foliant advise` needs FILE | `foliant advise --help`
2 | advise ''                                 | FILE needs a value         | --help
2 | advise missing.trace                      | there is no file missing.trace | foliant record -o missing.trace
2 | advise folder                             | folder cannot be read (it is a folder) | foliant record
2 | advise cut.trace                          | cut.trace: the trace is cut off | copy or record it again
2 | advise newer.trace                        | newer.trace: the trace has version 99 | use a newer foliant
2 | advise good.trace damaged.trace           | damaged.trace: block       | copy or record it again
2 | advise empty.trace                        | empty.trace: this is not a Foliant trace | foliant record
2 | advise good.trace --spend                 | --spend needs a value      | --help
2 | advise good.trace --spend ''              | --spend cannot be ''       | 0 to 1000
2 | advise good.trace --spend 1001            | --spend cannot be '1001'   | 0 to 1000
2 | advise good.trace --spend=-1              | --spend cannot be '-1'     | 0 to 1000
2 | advise good.trace --spend 0.5             | --spend cannot be '0.5'    | 0 to 1000
2 | advise good.trace --spend much            | --spend cannot be 'much'   | 0 to 1000
2 | advise good.trace --model laptop          | --model cannot be 'laptop' | xeon-guest-2, host-8-socket, guest-252, here
2 | advise good.trace --budget 1m             | --budget cannot be '1m'    | use 64m to 1t
2 | advise good.trace --runs 3                | --runs                     | leave
2 | advise --runs 0 -- true                   | --runs cannot be '0'       | 1 to 99
2 | advise --runs 100 -- true                 | --runs cannot be '100'     | 1 to 99
2 | advise --runs many -- true                | --runs cannot be 'many'    | 1 to 99
2 | advise good.trace -- true                 | FILE                       | leave
2 | advise good.trace --apply --json          | --json                     | leave
2 | advise good.trace --plan-out              | --plan-out needs a value   | --help
2 | advise good.trace --plan-out folder       | folder cannot be written   | --plan-out
2 | advise good.trace --plan-out nowhere/x    | nowhere/x cannot be written (there is no such folder or file) | --plan-out
2 | advise good.trace --frob                  | `foliant advise` has no option --frob | `foliant advise --help`
2 | advise -- no-such-program                 | there is no program 'no-such-program' | check PATH

2 | schema ''                                 | there is no document       | there are replay, record
2 | schema replay sim                         | sim is one word too many   | `foliant schema --help`
2 | schema --json                             | `foliant schema` has no option --json | `foliant schema --help`
";

/// What no answer says: the words of a library, numbers of the system's, Rust's own forms of
/// values, and files that nobody asked for.
const FOREIGN: &[&str] = &[
    "invalid digit",
    "invalid value",
    "os error",
    "found in string",
    "panicked",
    "unwrap",
    "Some(",
    "None",
    "Err(",
    "Error",
    "::",
    "{ ",
    "\\\"",
    ".tmp",
    ".partial",
    ".foliant-",
    "is ,",
    "..=",
];

struct Row {
    code: i32,
    words: Vec<String>,
    parts: Vec<&'static str>,
}

fn rows() -> Vec<Row> {
    let row = |line: &'static str| {
        let mut cells = line.split(" | ").map(str::trim);
        let code = cells.next().unwrap().parse().unwrap();
        let word = |word: &str| if word == "''" { String::new() } else { word.to_owned() };
        let words = cells.next().unwrap().split(' ').filter(|word| !word.is_empty()).map(word);
        Row { code, words: words.collect(), parts: cells.collect() }
    };
    TABLE.lines().filter(|line| !line.is_empty()).map(row).collect()
}

/// A folder with a good recording, damaged ones, an empty file, a plan and a folder.
fn files() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refused");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("folder")).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/python.trace");
    let whole = std::fs::read(shipped).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    let changed = |at: usize, by: u8| {
        let mut bytes = whole.clone();
        bytes[at] = by;
        bytes
    };
    write("good.trace", &whole);
    write("cut.trace", &whole[..whole.len() / 2]);
    write("newer.trace", &changed(8, 99)); // the version follows the magic
    write("damaged.trace", &changed(whole.len() / 2, whole[whole.len() / 2] ^ 1));
    write("longer.trace", &[&whole[..], b"more"].concat());
    write("other.trace", b"#!/bin/sh\n");
    write("empty.trace", b"");
    // What it has beyond that, every machine can bar.
    let off = r#"{"schema":"foliant plan 1","global":"never","sizes":[],"wishes":[]}"#;
    write("off.json", off.as_bytes());
    folder
}

fn run(row: &Row, folder: &Path) -> Output {
    let is_setting = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        })
    };
    let settings = row.words.iter().take_while(is_setting).count();
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.current_dir(folder).stdin(Stdio::null());
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "FOLIANT_QEMU"] {
        command.env_remove(name);
    }
    command.env("XDG_DATA_HOME", folder.join("no-data"));
    command.envs(row.words[..settings].iter().filter_map(|word| word.split_once('=')));
    command.args(&row.words[settings..]).output().unwrap()
}

/// What is wrong with the answer, if anything is.
fn wrong(row: &Row, output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let complaint = |what: String| Some(format!("{}: {what}: {said}", row.words.join(" ")));
    // What root is told before anything is recorded.
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains("runs as root")).collect();
    let Some((answer, usage)) = lines.split_first() else {
        return complaint("no answer".to_owned());
    };
    if usage.iter().any(|line| !line.trim_start_matches("Usage:").trim().starts_with("foliant")) {
        return complaint("more than a sentence and a usage".to_owned());
    }
    if output.status.code() != Some(row.code) {
        return complaint(format!("exit code {:?}", output.status.code()));
    }
    if row.code == 2 && !output.stdout.is_empty() {
        return complaint(format!("printed {}", String::from_utf8_lossy(&output.stdout)));
    }
    if !answer.starts_with("foliant: ") {
        return complaint("does not begin with the command's name".to_owned());
    }
    if let Some(part) = row.parts.iter().find(|part| !answer.contains(**part)) {
        return complaint(format!("{part:?} is missing"));
    }
    let foreign = FOREIGN.iter().find(|word| answer.contains(**word));
    foreign.and_then(|word| complaint(format!("{word:?} is foreign")))
}

#[test]
fn every_wrong_question_has_an_answer_with_the_value_and_the_way_out() {
    let (rows, folder, next) = (rows(), files(), AtomicUsize::new(0));
    assert!(rows.len() >= 250, "{} rows", rows.len());
    let work = || {
        let mut complaints = Vec::new();
        while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            complaints.extend(wrong(row, &run(row, &folder)));
        }
        complaints
    };
    let complaints: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(complaints.is_empty(), "{} answers:\n{}", complaints.len(), complaints.join("\n"));
    let left = |name: &str| folder.join(name).exists();
    assert!(!["new.trace", "x.trace", "page.html"].into_iter().any(left), "something was made");
}
