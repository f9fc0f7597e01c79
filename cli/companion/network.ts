import { variables } from '../../lib/config.ts';
import { loadEnvironment, readVariable } from '../environment.ts';
import { type CommandContext, printWarning } from '../output.ts';

/**
 * The parts that connect a companion to its relay. They trust the authorities of Node, and those of `NODE_EXTRA_CA_CERTS`
 * and its like for Reach brokers.
 */
export async function openNetwork(context: CommandContext) {
  const [{ createDial }, { createCallRelay }, { createPinnedConnector }, { readTrust }, { isSignedBy }] =
    await Promise.all([
      import('../../lib/host/node/dial.ts'),
      import('../../lib/host/node/relay-call.ts'),
      import('../../lib/host/node/pinned.ts'),
      import('../../lib/host/node/trust.ts'),
      import('../../lib/host/node/identity.ts'),
    ]);
  const environment = loadEnvironment(context.env);
  const bundles = {
    nodeExtraCaCerts: readVariable(variables.nodeExtraCaCerts, environment),
    caBundle: readVariable(variables.caBundle, environment),
    sslCertFile: readVariable(variables.sslCertFile, environment),
    requestsCaBundle: readVariable(variables.requestsCaBundle, environment),
    curlCaBundle: readVariable(variables.curlCaBundle, environment),
  };
  const trust = await readTrust(bundles, (message) => printWarning(context, message));
  const pinned = createPinnedConnector({ trust });
  return { dial: createDial(pinned), callRelay: createCallRelay(pinned), isSignedBy };
}
