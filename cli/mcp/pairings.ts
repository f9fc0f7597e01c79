import * as v from 'valibot';
import { utf8ToBytes } from '../../lib/kit/bytes.ts';
import { parseJson } from '../../lib/kit/json.ts';
import { underLock } from '../hold-state.ts';
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
  const { files } = await context.createHost(agentHome);
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

  /** Changes the file as it is now: another command may have changed it while this one asked. Resolves with what it replaced. */
  const change = (next: (stored: McpPairing[]) => McpPairing[]): Promise<McpPairing[]> =>
    underLock(path, async () => {
      const stored = await read();
      pairings = next(stored);
      if (pairings.length === 0) await files.remove(path);
      else await files.writeAtomic(path, utf8ToBytes(`${JSON.stringify({ version: 1, pairings }, null, 2)}\n`), 0o600);
      return stored;
    });

  return {
    path,
    all: (): readonly McpPairing[] => pairings,
    find: (name: string): McpPairing | undefined => pairings.find((one) => one.name === name),
    /** Resolves with the pairing of that name that it replaces. */
    async put(pairing: McpPairing): Promise<McpPairing | undefined> {
      const isOther = ({ name }: McpPairing) => name !== pairing.name;
      const stored = await change((all) => [...all.filter(isOther), pairing]);
      return stored.find((one) => !isOther(one));
    },
    /** Keeps a newer pairing of the same name. */
    remove: (pairing: McpPairing) => change((all) => all.filter(({ token }) => token !== pairing.token)),

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
