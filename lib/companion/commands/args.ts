import * as v from 'valibot';
import type { JsonObject } from '../../kit/json.ts';
import type { DeviceRow } from '../../operations/device.ts';
import { inputOf } from '../../operations/input.ts';
import { type CommandCall, CommandFailure, type Handler } from '../gates/gate.ts';

/** The arguments of a command, as parsed by the schema of its row. */
export type ArgsOf<Row extends DeviceRow> = v.InferOutput<Row['input']>;

/** A handler that gets the parsed arguments of its row. */
export type HandlerOf<Row extends DeviceRow> = (call: CommandCall, args: ArgsOf<Row>) => ReturnType<Handler>;

/** The issue of a schema that rejects the arguments. */
export type Problem = Pick<v.BaseIssue<unknown>, 'message' | 'type'>;

export const badRequest = (error: string) => new CommandFailure(400, error);

/** The arguments of a command, or the first problem with them. */
export function readArgs<Row extends DeviceRow>(
  row: Row,
  raw: JsonObject,
): { args: ArgsOf<Row>; problem?: undefined } | { args?: undefined; problem: Problem } {
  const { success, output, issues } = v.safeParse(row.input, inputOf(row, raw), { abortEarly: true });
  return success ? { args: output as ArgsOf<Row> } : { problem: issues[0] };
}
