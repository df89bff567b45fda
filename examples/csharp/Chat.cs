// Talks with Mira of the demo over a WebSocket: a streamed reply, a reply that the player cuts, and a
// connection that drops and resumes. No package. See ../README.md.

using System;
using System.IO;
using System.Linq;
using System.Net.WebSockets;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

/// <summary>A player's connection, and what the player sees of the dialogue.</summary>
class Client
{
    /// <summary>The NPC's words so far, and whether they are all of the reply.</summary>
    public string Reply = "";
    public bool IsDone;
    /// <summary>Of the last durable event: what a resume begins after.</summary>
    public long LastSeq;

    ClientWebSocket socket;

    public async Task Connect(string url, string token)
    {
        // Unity's WebGL player cannot set headers: there the token is a subprotocol, as in ../javascript/chat.mjs.
        socket = new ClientWebSocket();
        socket.Options.SetRequestHeader("Authorization", "Bearer " + token);
        await socket.ConnectAsync(new Uri(url), CancellationToken.None);
    }

    /// <summary>Ends the connection as a network that fails does.</summary>
    public void Drop() => socket.Abort();

    public Task Send(object message)
    {
        var bytes = new ArraySegment<byte>(JsonSerializer.SerializeToUtf8Bytes(message));
        return socket.SendAsync(bytes, WebSocketMessageType.Text, true, CancellationToken.None);
    }

    /// <summary>The next event. A game does this in a task of its own, and shows `Reply` in each frame.</summary>
    public async Task<JsonElement> Next()
    {
        var (bytes, buffer) = (new MemoryStream(), new byte[4096]);
        WebSocketReceiveResult part;
        do
        {
            part = await socket.ReceiveAsync(new ArraySegment<byte>(buffer), CancellationToken.None);
            bytes.Write(buffer, 0, part.Count);
        } while (!part.EndOfMessage);
        if (part.MessageType == WebSocketMessageType.Close)
            throw new IOException("the connection is closed: " + part.CloseStatusDescription);
        var e = JsonDocument.Parse(bytes.ToArray()).RootElement;
        // Deltas have no number.
        if (e.TryGetProperty("seq", out JsonElement seq)) LastSeq = seq.GetInt64();
        switch (Text(e, "type"))
        {
            case "error": throw new InvalidOperationException(e.GetProperty("error").ToString());
            case "turn.started": (Reply, IsDone) = ("", false); break;
            // After a resume one delta from offset 0 has the whole reply so far.
            case "reply.delta": Reply = (e.GetProperty("offset").GetInt32() == 0 ? "" : Reply) + Text(e, "text"); break;
            case "reply.done":
                if (Text(e, "status") == "failed") throw new InvalidOperationException("the reply failed; repeat its line");
                (Reply, IsDone) = (Text(e, "text"), true);
                break;
        }
        return e;
    }

    /// <summary>The next event in which `field` is `value`.</summary>
    public async Task<JsonElement> Until(string field, string value)
    {
        while (true)
        {
            var e = await Next();
            if (Text(e, field) == value) return e;
        }
    }

    public static string Text(JsonElement e, string field) => e.TryGetProperty(field, out var text) ? text.GetString() : null;
}

static class Chat
{
    static async Task Main()
    {
        var url = Environment.GetEnvironmentVariable("COLLOQUY_URL") ?? "ws://127.0.0.1:8080/v1/ws";
        var token = Environment.GetEnvironmentVariable("COLLOQUY_TOKEN") ?? "";
        var client = new Client();
        await client.Connect(url, token);
        await client.Send(new { type = "session.create", world_id = "vale", npc_id = "mira" });
        var created = await client.Until("type", "session.created");
        var (session_id, resume_token) = (Client.Text(created, "session_id"), Client.Text(created, "resume_token"));
        Console.WriteLine("session " + session_id);
        // The key makes it safe to send a line again: the server answers a key once.
        Func<string, Task> say = text =>
        {
            Console.WriteLine("you> " + text);
            return client.Send(new { type = "player.say", session_id, key = Guid.NewGuid().ToString(), text });
        };

        // 1. A reply as it streams. With turn.committed it is safe on the server.
        await say("I like grapes.");
        Console.Write("mira> ");
        var (kind, pieces) = ("", 0);
        while (kind != "turn.committed")
        {
            var e = await client.Next();
            kind = Client.Text(e, "type");
            if (kind != "reply.delta") continue;
            Console.Write(Client.Text(e, "text"));
            pieces++;
        }
        Console.WriteLine($" ({pieces} pieces)");

        // 2. The player cuts in. A game with voices counts the characters that were played; here they are those shown.
        await say("Tell me about the forest.");
        var turn = (await client.Until("type", "turn.started")).GetProperty("turn").GetInt32();
        while (client.Reply.Length < 8 && !client.IsDone) await client.Next();
        Console.WriteLine($"mira> {client.Reply}...");
        // The server counts Unicode scalar values: runes. Where there are none (Unity), send heard_utf16 = Reply.Length.
        var heard_chars = client.Reply.EnumerateRunes().Count();
        await client.Send(new { type = "player.interrupt", event_id = "cut", session_id, turn, heard_chars });
        var cut = await client.Until("re", "cut");
        var how = Client.Text(cut, "type");
        // A reply that was complete by then is cut afterwards, and the client shortens its copy.
        if (how == "dialogue.rewound")
            client.Reply = string.Concat(client.Reply.EnumerateRunes().Take(cut.GetProperty("heard_chars").GetInt32()));
        Console.WriteLine($"cut: turn {turn} is now \"{client.Reply}\" ({how})");

        // 3. The connection drops in mid-reply. The reply goes on, and a resume brings the events that were missed.
        await say("What fruit do I like?");
        await client.Until("type", "turn.started");
        client.Drop();
        await client.Connect(url, token);
        await client.Send(new { type = "session.resume", session_id, resume_token, last_seq = client.LastSeq });
        var resumed = await client.Until("type", "session.resumed");
        while (!client.IsDone) await client.Next();
        Console.WriteLine($"resumed: {resumed.GetProperty("replayed")} missed events\nmira> {client.Reply}");

        await client.Send(new { type = "session.close", session_id });
        var closed = await client.Until("type", "session.closed");
        Console.WriteLine("closed: " + Client.Text(closed, "reason"));
    }
}
