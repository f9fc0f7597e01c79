import type { JsonObject } from '../kit/json.ts';
import type { OperationRow } from './operation.ts';

/** Checks and conversions that JSON Schema cannot express. */
const IGNORED = ['check', 'raw_check', 'safe_integer', 'to_max_value', 'to_min_value', 'trim'];

/** The input of operations as JSON schemas, by name (contract 09 §7). The package is loaded by the first call. */
export async function inputSchemas(rows: readonly OperationRow[]): Promise<ReadonlyMap<string, JsonObject>> {
  const { toJsonSchema } = await import('@valibot/to-json-schema');
  return new Map(
    rows.map(({ name, input }) => {
      const { $schema: _, ...schema } = toJsonSchema(input, {
        target: 'draft-2020-12',
        typeMode: 'input',
        ignoreActions: IGNORED,
      });
      return [name, schema];
    }),
  );
}
