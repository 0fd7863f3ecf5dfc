// Package simulation holds tests and nothing else: whole hosts over a simulated cluster, whose processes die, follow one another and
// run beside each other while requests fail, answers get lost, and other people work on the same objects. After each run the laws
// are checked over everything that was sent, written and reported.
//
//	go test ./fake/internal/simulation -seed 17 -v     # one run, with its history
//	go test ./fake/internal/simulation -run Seeds -seeds 20000 -shard 1/2 -timeout 4h
//	go test ./fake/internal/simulation -run Die -every-pair -timeout 4h
package simulation
