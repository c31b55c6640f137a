package main

import "context"

func shardingTables(ctx context.Context) error { return inWorld(ctx, (*world).shardingTables) }

func (w *world) shardingTables(ctx context.Context) error {
	if len(shardingHub.all) > 0 {
		if err := w.hubTable(ctx); err != nil {
			return err
		}
	}
	if *shardingMembers > 0 {
		if err := w.costTable(ctx); err != nil {
			return err
		}
		if err := w.movesTable(ctx); err != nil {
			return err
		}
	}
	if len(shardingThroughput.all) > 0 {
		return w.reconcilesTable(ctx)
	}
	return nil
}
