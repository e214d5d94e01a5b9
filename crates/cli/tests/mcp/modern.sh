#!/usr/bin/env bash
# A server of the Model Context Protocol 2026-07-28 for tests: no handshake, every request says what it is. The first argument is what is odd about it.
odd=$1
[ "$odd" = slow ] && sleep 4
tool() { printf '{"name":"%s","description":"%s","inputSchema":%s%s}' "$1" "$2" "$text" "$3"; }
text='{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}'
state=0
while IFS= read -r line; do
  id=
  [[ $line =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
  said=
  [[ $line =~ \"text\":\"([^\"]*)\" ]] && said=${BASH_REMATCH[1]}
  reply() { printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}\n' "$id" "$1"; }
  refuse() { printf '{"jsonrpc":"2.0","id":%s,"error":%s}\n' "$id" "$1"; }
  block() { reply '"content":[{"type":"text","text":"'"$1"'"}]'; }
  wants() { printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required",%s}}\n' "$id" "$1"; }
  case $line in
    *'"method":"notifications/cancelled"'*) echo told > cancelled.txt; continue ;;
    *'"method":"initialize"'*)
      case $odd in
        both) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"both"}}}\n' "$id"; legacy=yes ;;
        *) refuse '{"code":-32022,"message":"no handshake","data":{"supported":["2026-07-28"]}}' ;;
      esac
      continue ;;
  esac
  [ -n "$id" ] || continue
  if [ -z "$legacy" ] && [[ $line != *'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"alara"'*'"io.modelcontextprotocol/clientCapabilities":{}}'* ]]; then
    refuse '{"code":-32602,"message":"it does not say what it speaks"}'
    continue
  fi
  case $line in
    *'"method":"server/discover"'*)
      case $odd in
        both) refuse '{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2025-11-25"]}}' ;;
        future) reply '"supportedVersions":["2030-01-01"],"capabilities":{}' ;;
        needs) refuse '{"code":-32021,"message":"Missing capability: sampling"}' ;;
        *) reply '"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"3"}}' ;;
      esac ;;
    *'"method":"subscriptions/listen"'*)
      listen=$id
      printf '{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}\n' "$id" ;;
    *'"method":"tools/list"'*'"cursor":"two"'*)
      reply '"tools":['"$(tool b 'Another.'),$(tool typed 'Typed.' ',"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}')"']' ;;
    *'"method":"tools/list"'*)
      reply '"tools":['"$(tool a 'Says it again.' ',"annotations":{"readOnlyHint":true}')"'],"nextCursor":"two","ttlMs":0' ;;
    *'"method":"tools/call"'*)
      case $odd in
        asks) wants '"inputRequests":{"name":{"method":"elicitation/create","params":{"message":"Your name?"}}}' ;;
        later) if [[ $line == *'"requestState":"s1"'* ]]; then block "later: $said"; else wants '"requestState":"s1"'; fi ;;
        never) state=$((state + 1)); wants '"requestState":"s'$state'"' ;;
        strange) printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task","task":{}}}\n' "$id" ;;
        hangs) [[ $line == *'"name":"b"'* ]] && block "alive, and $(cat cancelled.txt)" ;;
        wrongly) reply '"content":[],"structuredContent":{"n":"one"}' ;;
        changes) printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}\n' "$listen"; block "changed" ;;
        *) block "modern: $said" ;;
      esac ;;
    *'"method":"resources/list"'*'"cursor":"two"'*)
      reply '"resources":[{"uri":"file:///two","name":"two"}]' ;;
    *'"method":"resources/list"'*)
      case $odd in
        closed) refuse '{"code":-32603,"message":"no disk"}' ;;
        *) reply '"resources":[{"uri":"file:///one","name":"one","description":"The first."}],"nextCursor":"two"' ;;
      esac ;;
    *'"method":"resources/templates/list"'*)
      reply '"resourceTemplates":[{"uriTemplate":"note://{day}","name":"notes"}]' ;;
    *'"method":"resources/read"'*'"uri":"file:///one"'*)
      reply '"contents":[{"uri":"file:///one","text":"All of it."}]' ;;
    *'"method":"resources/read"'*'"uri":"note://'*)
      reply '"contents":[{"uri":"note://1","text":"one"},{"uri":"note://2","blob":"AAAA","mimeType":"image/png"}]' ;;
    *'"method":"resources/read"'*)
      refuse '{"code":-32602,"message":"Resource not found"}' ;;
    *) refuse '{"code":-32601,"message":"Method not found"}' ;;
  esac
done
