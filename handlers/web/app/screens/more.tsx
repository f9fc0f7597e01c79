import { MoreList } from '../../shared/shell.tsx';
import { useApp } from '../context.ts';
import { offered } from '../screens.ts';

/** The screens that do not fit into the bar of a phone. */
export default function More() {
  return <MoreList screens={offered(useApp().session)} />;
}
