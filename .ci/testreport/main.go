package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
)

func main() {
	allow := flag.String("allow", "", "file that lists the skips that are allowed")
	flag.Parse()
	if err := run(*allow); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(allowFile string) error {
	allowed := skips{}
	if allowFile != "" {
		list, err := os.ReadFile(allowFile)
		if err != nil {
			return fmt.Errorf("read the allowed skips: %w", err)
		}
		if allowed, err = parseSkips(bytes.NewReader(list)); err != nil {
			return fmt.Errorf("%s: %w", allowFile, err)
		}
	}
	out := bufio.NewWriter(os.Stdout)
	r := newReport(out, allowed)
	err := r.read(os.Stdin)
	if err == nil {
		err = r.finish()
	}
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	return err
}
