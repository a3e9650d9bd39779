package actors_test

// Workflows that several tests share. Their steps want a worker with the label gpu=true.
const (
	single = `
name: single
labels: {gpu: "true"}
jobs:
  - name: main
    steps:
      - {name: only, run: work}
`
	chain = `
name: chain
labels: {gpu: "true"}
jobs:
  - name: main
    steps:
      - {name: first, run: work}
      - {name: second, run: work, dependsOn: [first]}
`
	pair = `
name: pair
labels: {gpu: "true"}
jobs:
  - name: main
    steps:
      - {name: left, run: work}
      - {name: right, run: work}
`
)
