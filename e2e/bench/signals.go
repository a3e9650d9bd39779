package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyTerm sends the signals that end the worker.
func notifyTerm(c chan<- os.Signal) { signal.Notify(c, syscall.SIGTERM, os.Interrupt) }
