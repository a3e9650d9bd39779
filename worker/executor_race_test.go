//go:build race

package worker

// raceDetector tells that a keeper of this test binary takes ten times as long to start.
const raceDetector = true
