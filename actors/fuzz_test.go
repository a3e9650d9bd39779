package actors

import (
	"testing"

	"pgregory.net/rapid"
)

// The properties again, driven by what the fuzzer finds to lead to new places. Each input that fails becomes a seed.

func FuzzStep(f *testing.F) { f.Fuzz(rapid.MakeFuzz(stepStory())) }

func FuzzLease(f *testing.F) { f.Fuzz(rapid.MakeFuzz(leaseStory())) }

func FuzzWorker(f *testing.F) { f.Fuzz(rapid.MakeFuzz(workerStory())) }

func FuzzToken(f *testing.F) { f.Fuzz(rapid.MakeFuzz(tokenStory())) }

func FuzzScheduler(f *testing.F) { f.Fuzz(rapid.MakeFuzz(schedulerStory)) }

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(modelStory)) }
