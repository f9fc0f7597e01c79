import { directoriesOf } from '../environment.ts';
import { type CommandContext, printWarning } from '../output.ts';
import { isUnfinished } from './journal.ts';

/** Finishes a restore that was killed after its commit, before anything reads the home (contract 11 §3). */
export async function endRestore(context: CommandContext): Promise<void> {
  const { agentHome } = directoriesOf(context.env);
  if (!isUnfinished(agentHome)) return;
  const [{ finishRestore }, { StateInUseError }] = await Promise.all([
    import('./apply.ts'),
    import('../../storage/sqlite.ts'),
  ]);
  await finishRestore(agentHome).catch((error) => {
    if (!(error instanceof StateInUseError)) throw error;
    printWarning(context, "a restore waits until the relay stops: stop it with 'svc down', and type any command");
  });
}
