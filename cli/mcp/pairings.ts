import * as v from 'valibot';
import type { HostFiles } from '../../lib/host/index.ts';
import { utf8ToBytes } from '../../lib/kit/bytes.ts';
import { parseJson } from '../../lib/kit/json.ts';
import { type CommandContext, CommandError, printable } from '../output.ts';

const MAX_FILE = 256 * 1024;

/** The default name of a pairing. */
export const DEFAULT_NAME = 'mcp';

const Stored = v.object({
  version: v.literal(1),
  pairings: v.array(
    v.object({
      name: v.string(),
      token: v.pipe(v.string(), v.minLength(8)),
      /** For a remote relay. */
      url: v.optional(v.string()),
      /** Epoch seconds. */
      created_at: v.number(),
    }),
  ),
});

/** A session of this machine's agents. Its token is sent to the relay only. */
export type McpPairing = v.InferOutput<typeof Stored>['pairings'][number];

export type Pairings = Awaited<ReturnType<typeof openPairings>>;

/** The sessions made by `svc mcp pair`, in a file that only this user can read (contract 09 §7). */
export async function openPairings(agentHome: string, context: CommandContext) {
  const { files }: { files: HostFiles } = await context.createHost(agentHome);
  const path = `${agentHome}/svc-relay/mcp.json`;
  async function read(): Promise<McpPairing[]> {
    const text = await files.readText(path, MAX_FILE);
    const parsed = text === null ? undefined : v.safeParse(Stored, parseJson(text));
    if (parsed && !parsed.success) {
      throw new CommandError(
        `${printable(path)} is not a list of sessions`,
        `Move it away, and pair again with: ${context.program} mcp pair`,
      );
    }
    if (text !== null) await files.tighten(path, 0o600);
    return parsed?.output.pairings ?? [];
  }

  let pairings = await read();

  /** Of what is stored now: another command may have changed it since, such as while this one asked. */
  async function replace(name: string, by: readonly McpPairing[]): Promise<McpPairing | undefined> {
    const stored = await read();
    await save([...stored.filter((one) => one.name !== name), ...by]);
    return stored.find((one) => one.name === name);
  }

  async function save(next: McpPairing[]): Promise<void> {
    pairings = next;
    if (next.length === 0) return files.remove(path);
    await files.writeAtomic(path, utf8ToBytes(`${JSON.stringify({ version: 1, pairings: next }, null, 2)}\n`), 0o600);
  }

  return {
    path,
    all: (): readonly McpPairing[] => pairings,
    find: (name: string): McpPairing | undefined => pairings.find((one) => one.name === name),
    /** Resolves with the pairing of that name that it replaces. */
    put: (pairing: McpPairing) => replace(pairing.name, [pairing]),
    remove: (name: string) => replace(name, []),

    /** @throws CommandError if the pairing does not exist. */
    require(name: string = DEFAULT_NAME): McpPairing {
      const found = this.find(name) ?? (name === DEFAULT_NAME && pairings.length === 1 ? pairings[0] : undefined);
      if (found) return found;
      const which = name === DEFAULT_NAME ? '' : ` --name ${printable(name)}`;
      throw new CommandError(
        pairings.length === 0 ? 'no agent of this machine is paired' : `no pairing is named '${printable(name)}'`,
        `Pair with: svc mcp pair${which}`,
      );
    },
  };
}

/** The public part of a token, which identifies its session. */
export const prefixOf = ({ token }: Pick<McpPairing, 'token'>): string => token.slice(0, 8);
