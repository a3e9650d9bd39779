// Command testreport reads what `go test -json` prints, shows go test's own lines, and fails when a test was skipped
// that nobody has allowed to be skipped: a skipped test is green without having looked.
//
//	go test -race -json ./... | go run ./.ci/testreport -allow .ci/skips.txt
//
// A line of the allowed skips is a package (its folder), a test, and the reason:
//
//	worker TestKeeper/suspend a reason in words
package main
