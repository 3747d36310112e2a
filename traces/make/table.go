// A map of byte slices.
package main

import "fmt"

func main() {
	m := map[int][]byte{}
	for i := 0; i < 300000; i++ {
		m[i*7%100003] = make([]byte, 64+i%200)
	}
	fmt.Println(len(m))
}
